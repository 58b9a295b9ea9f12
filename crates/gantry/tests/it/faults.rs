//! What must hold when cables are pulled and processes are killed. Seeded: the seed is printed, `GANTRY_SEED` repeats
//! it, and `GANTRY_SOAK=1` runs ten times as many rounds.

mod bounds;
mod cuts;
mod dice;
mod kills;
mod load;
mod orphans;
mod proxy;
mod stopping;
mod transfers;
