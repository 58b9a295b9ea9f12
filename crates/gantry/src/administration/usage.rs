//! `usage.report`: tokens and costs by day, agent, session and model, from one query.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{ModelPrice, UsageParams, UsageReport, UsageRow, UsageSpent, UsageSum};
use gantry_store::UsageBucket;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};

use super::{Answer, State, bad_params, internal};

const DAYS: i64 = 29;
const MAX_DAYS: i32 = 400;
const NANOS_OF_A_DOLLAR: f64 = 1e9;
const PRICED_TOKENS: f64 = 1e6;

pub(super) async fn report(state: Arc<State>, _: MethodContext, params: UsageParams) -> Answer<UsageReport> {
    let today = Timestamp::now().to_zoned(state.zone.clone()).date();
    let day = |name: &str, text: Option<&String>| {
        let parsed = text.map(|text| text.parse::<Date>()).transpose();
        parsed.map_err(|_| bad_params(format!("\"{name}\" must be a day such as 2026-01-31")))
    };
    let to = day("to", params.to.as_ref())?.unwrap_or(today);
    let from = day("from", params.from.as_ref())?.unwrap_or(to.saturating_sub(DAYS.days()));
    let length = from.until(to).map_err(|err| bad_params(err.to_string()))?.get_days();
    if !(0..MAX_DAYS).contains(&length) {
        return Err(bad_params(format!("\"from\" must be a day before \"to\", at most {MAX_DAYS} days")));
    }
    let start = |date: Date| {
        let zoned = date.to_zoned(state.zone.clone()).map_err(|err| bad_params(err.to_string()))?;
        Ok::<_, gantry_protocol::WireError>(zoned.timestamp().as_millisecond())
    };
    let end = to.saturating_add(1.day());
    let buckets = state.database.usage(start(from)?, start(end)?).await.map_err(|err| internal(&err))?;
    let (from, to) = (from.to_string(), to.to_string());
    let spent = state.database.spent_by_day(&from, &to).await.map_err(|err| internal(&err))?;
    let models = state.models.report().await;
    let prices = models.models.into_iter().filter_map(|model| Some((model.name, model.price?))).collect();
    let (rows, total) = rows(&buckets, &prices, |at| {
        let at = Timestamp::from_millisecond(at).unwrap_or_default();
        at.to_zoned(state.zone.clone()).date().to_string()
    });
    let spent = spent.into_iter().map(|(day, agent, nanos)| UsageSpent { day, agent, usd: dollars(nanos) });
    Ok(UsageReport {
        from,
        to,
        timezone: state.zone.iana_name().unwrap_or("UTC").to_owned(),
        rows,
        total,
        spent: spent.collect(),
        budgets: models.budgets,
    })
}

/// Sums the buckets of each day. The total is the sum of the rows.
fn rows(
    buckets: &[UsageBucket],
    prices: &HashMap<String, ModelPrice>,
    day: impl Fn(i64) -> String,
) -> (Vec<UsageRow>, UsageSum) {
    let mut sums: BTreeMap<(String, &str, &str, &str), UsageSum> = BTreeMap::new();
    let mut total = UsageSum::default();
    for bucket in buckets {
        let key = (day(bucket.at), bucket.agent.as_str(), bucket.session.as_str(), bucket.model.as_str());
        let new = sum(bucket, prices.get(&bucket.model));
        add(sums.entry(key).or_default(), &new);
        add(&mut total, &new);
    }
    let rows = sums.into_iter().map(|((day, agent, session, model), sum)| UsageRow {
        day,
        agent: agent.to_owned(),
        session_key: session.to_owned(),
        model: model.to_owned(),
        sum,
    });
    (rows.collect(), total)
}

#[expect(clippy::cast_precision_loss, reason = "tokens of a report are far below 2^53")]
fn sum(bucket: &UsageBucket, price: Option<&ModelPrice>) -> UsageSum {
    let cost = price.map_or(0.0, |price| {
        let counted = [
            (bucket.input_tokens, price.input),
            (bucket.output_tokens, price.output),
            (bucket.cache_read_tokens, price.cache_read),
            (bucket.cache_write_tokens, price.cache_write),
        ];
        counted.iter().map(|(tokens, rate)| *tokens as f64 * rate / PRICED_TOKENS).sum()
    });
    UsageSum {
        requests: bucket.requests,
        input_tokens: bucket.input_tokens,
        output_tokens: bucket.output_tokens,
        cache_read_tokens: bucket.cache_read_tokens,
        cache_write_tokens: bucket.cache_write_tokens,
        cost_usd: cost,
        unpriced: if price.is_some() { 0 } else { bucket.requests },
    }
}

fn add(sum: &mut UsageSum, more: &UsageSum) {
    let plus = |number: &mut u64, more: u64| *number = number.saturating_add(more);
    plus(&mut sum.requests, more.requests);
    plus(&mut sum.input_tokens, more.input_tokens);
    plus(&mut sum.output_tokens, more.output_tokens);
    plus(&mut sum.cache_read_tokens, more.cache_read_tokens);
    plus(&mut sum.cache_write_tokens, more.cache_write_tokens);
    plus(&mut sum.unpriced, more.unpriced);
    sum.cost_usd += more.cost_usd;
}

#[expect(clippy::cast_precision_loss, reason = "shown to people, with a few decimal places")]
fn dollars(nanos: i64) -> f64 {
    nanos as f64 / NANOS_OF_A_DOLLAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_sum_of_the_rows() {
        let bucket = |at, model: &str, input| UsageBucket {
            at,
            agent: "main".into(),
            session: "s".into(),
            model: model.into(),
            requests: 1,
            input_tokens: input,
            output_tokens: 10,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
        };
        let price = ModelPrice { input: 2.0, output: 10.0, cache_read: 0.0, cache_write: 0.0 };
        let prices = HashMap::from([("p/a".to_owned(), price)]);
        let buckets = [
            bucket(1, "p/a", 1_000_000),
            bucket(2, "p/a", 500_000),
            bucket(2, "p/b", 7),
            bucket(11, "p/a", 0),
        ];
        let (rows, total) = rows(&buckets, &prices, |at| format!("day {}", at / 10));
        let short: Vec<_> = rows
            .iter()
            .map(|row| (row.day.as_str(), row.model.as_str(), row.sum.requests, row.sum.input_tokens))
            .collect();
        assert_eq!(short, [("day 0", "p/a", 2, 1_500_000), ("day 0", "p/b", 1, 7), ("day 1", "p/a", 1, 0)]);
        let mut summed = UsageSum::default();
        rows.iter().for_each(|row| add(&mut summed, &row.sum));
        assert_eq!(summed, total);
        assert!((total.cost_usd - 3.0003).abs() < 1e-9 && total.unpriced == 1, "{total:?}");
    }
}
