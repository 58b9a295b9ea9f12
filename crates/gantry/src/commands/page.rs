//! `gantry page` prints a link that opens the web page once, and manages the browsers that are logged in.

use anyhow::{Context, Result};
use clap::Args;
use gantry_protocol::{Empty, PageLink, PageRevoke, PageRevoked, PageSessionList, method};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use serde_json::json;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry page                                      print a link; it works once, for ten minutes\n  \
    gantry page --qr                                 print it as a QR code too, for a phone\n  \
    gantry page --list                               list the browsers that are logged in\n  \
    gantry page --revoke all                         log all of them out")]
pub(crate) struct PageArgs {
    /// Print the link as a QR code too
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    pub(crate) qr: bool,
    /// List the browsers that are logged in
    #[arg(long, conflicts_with = "revoke")]
    pub(crate) list: bool,
    /// Log a browser out: an id of --list or its beginning, or "all"
    #[arg(long, value_name = "ID")]
    pub(crate) revoke: Option<String>,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: PageArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    if args.list {
        list(output, &Client::once(&address, output, method::PAGE_SESSIONS, &Empty {})?);
    } else if let Some(id) = args.revoke {
        let revoked: PageRevoked = Client::once(&address, output, method::PAGE_REVOKE, &PageRevoke { id })?;
        match revoked.ids.as_slice() {
            [] => output.done("No browser was logged in."),
            [id] => output.done(&format!("The page session {id} is over.")),
            ids => output.done(&format!("{} page sessions are over.", ids.len())),
        }
    } else {
        let link: PageLink = Client::once(&address, output, method::PAGE_LINK, &Empty {})?;
        show(output, &address, &link, args.qr)?;
    }
    Ok(Exit::Success)
}

/// The address that logs a browser in. A browser never sends what follows `#`, so no log and no proxy has the code.
pub(crate) fn page_url(gateway: &str, code: &str) -> String {
    format!("{}/#login={code}", gateway.trim_end_matches('/'))
}

fn show(output: &Output, address: &Address, link: &PageLink, qr: bool) -> Result<()> {
    let own = address.url.to_string();
    // Another device reaches the public URL, and certificates are rarely issued for 127.0.0.1.
    let public = link.public_url.as_deref().filter(|_| qr || address.url.secure);
    let gateway = public.unwrap_or(&own);
    let url = page_url(gateway, &link.code);
    if output.json {
        output.value(&json!({"url": url, "code": link.code, "expires": link.expires}));
        return Ok(());
    }
    output.line(&url);
    if qr {
        let code = QrCode::new(url.as_bytes()).context("cannot draw the QR code")?;
        let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
        match output.renders() {
            // Black on white whatever the colors of the terminal are, because some readers reject the inverse.
            true => {
                drawn.lines().for_each(|line| output.rendered(&format!("\x1b[30;107m{line}\x1b[0m\n")));
            }
            false => output.page(&drawn),
        }
        if public.is_none() && is_loopback(&address.url.host) {
            output.warning(&format!(
                "other devices cannot reach {own}; start the gateway with --listen ADDR and --public-url URL"
            ));
        }
    }
    output.note("the link works once, for ten minutes");
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn list(output: &Output, listed: &PageSessionList) {
    if output.json {
        return output.value(&listed.sessions);
    }
    let time = |ms: i64| {
        jiff::Timestamp::from_millisecond(ms).map_or_else(|_| "?".to_owned(), |time| format!("{time:.0}"))
    };
    for session in &listed.sessions {
        let facts = [
            session.address.clone(),
            format!("last used {}", time(session.last_used)),
            session.browser.clone(),
        ];
        output.line(&format!("{}  {}", output.bold(&session.id), facts.join(" · ")));
    }
}
