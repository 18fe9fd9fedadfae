//! Steps of a run from a seed. The effect of a step does not depend on the others, so steps can be removed.

use crate::support::choice::Choice;

/// Number of steps of a run.
pub(crate) const STEPS: u64 = 60;

/// One step. Numbers that select an item are taken modulo the number of items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A host posts a request, and its peer the receive for it, if necessary. `draw` determines the request.
    Post { connection: usize, host: usize, draw: u64 },
    /// Time passes.
    Run { us: u64 },
    /// All events at the present time happen.
    Settle,
    /// Peers post their outstanding receives.
    Receives,
    /// Cuts the link from this host to the other.
    Cut { from: usize },
    /// Repairs the cut link.
    Heal,
    /// Stops a host for some time.
    Stall { host: usize, us: u64 },
    /// Disturbs one end of a connection.
    Disturbance { connection: usize, host: usize, harm: Disturbance },
    /// Destroys all queue pairs of a host at once.
    Restart { host: usize },
    /// Checks a connection and establishes it again.
    Reconnect { connection: usize },
}

/// Disturbance of one end, unknown to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disturbance {
    /// Moves it to ERR.
    Error,
    Reset,
    Destroy,
    /// Deregisters the memory for the peer's WRITEs.
    Target,
    /// Deregisters the memory for responses.
    Answers,
    /// Deregisters the memory of its receives.
    Inbox,
}

impl Disturbance {
    const ALL: [Self; 6] =
        [Self::Error, Self::Reset, Self::Destroy, Self::Target, Self::Answers, Self::Inbox];
}

/// Returns the steps of a seed. Half of the runs have no disturbances.
pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut choice = Choice::new(seed ^ 0x5eed);
    let harmful = choice.one_in(2);
    (0..STEPS).map(|_| step(&mut choice, harmful)).collect()
}

fn step(choice: &mut Choice, harmful: bool) -> Step {
    let connection = choice.below(8) as usize;
    let host = choice.below(2) as usize;
    let draw = choice.below(u64::MAX);
    match choice.below(40) {
        0..=25 => Step::Post { connection, host, draw },
        26..=29 => Step::Run { us: draw % 100 },
        30..=31 => Step::Settle,
        32..=33 => Step::Receives,
        34 => Step::Heal,
        35 if harmful => Step::Cut { from: host },
        36 if harmful => Step::Stall { host, us: draw % 2000 },
        37 if harmful => {
            let harm = Disturbance::ALL[(draw % 6) as usize];
            Step::Disturbance { connection, host, harm }
        }
        38 if harmful && choice.one_in(4) => Step::Restart { host },
        38 | 39 => Step::Reconnect { connection },
        _ => Step::Run { us: draw % 20 },
    }
}

/// Returns a minimal list of steps for which `fails` holds. Large parts are removed first.
pub(crate) fn shrink(mut steps: Vec<Step>, fails: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + part).min(steps.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    steps
}
