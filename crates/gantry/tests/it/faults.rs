//! Faults under load: connections are cut and processes are killed at random moments. `GANTRY_SEED` repeats a run, and
//! `GANTRY_SOAK=1` runs ten times as many rounds.

use gantry_testkit::scaled;

mod cuts;
mod gateway_stop;
mod kills;
mod load;
mod orphans;
mod stopping;
mod timing;

fn rounds() -> usize {
    scaled(100, 10)
}
