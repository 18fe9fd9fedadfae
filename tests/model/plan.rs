//! What a seed makes of a run: steps that mean the same whichever of the others are left out.

use super::support::choice::Choice;

/// Steps of a run.
pub(crate) const STEPS: u64 = 60;

/// One thing that is done. Numbers that choose one of several are taken modulo how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A host posts a request, and its peer the receive for it, if it takes one. All that is to be known
    /// of it follows from `draw`.
    Post { connection: usize, host: usize, draw: u64 },
    /// Time passes.
    Run { us: u64 },
    /// Everything that can be done now is.
    Settle,
    /// The receives that peers have not posted yet are.
    Receives,
    /// Nothing passes from this host to the other.
    Cut { from: usize },
    /// What was cut is mended.
    Heal,
    /// A host is not scheduled.
    Stall { host: usize, us: u64 },
    /// One end of a connection comes to harm.
    Harm { connection: usize, host: usize, harm: Harm },
    /// A host loses all its queue pairs at once.
    Restart { host: usize },
    /// A connection is looked at and made anew.
    Reconnect { connection: usize },
}

/// What is done to one end without its peer's knowing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Harm {
    /// It is told to fail.
    Error,
    Reset,
    Destroy,
    /// The memory that its peer writes is deregistered.
    Target,
    /// The memory for answers is.
    Answers,
    /// The memory of its receives is.
    Inbox,
}

impl Harm {
    const ALL: [Self; 6] =
        [Self::Error, Self::Reset, Self::Destroy, Self::Target, Self::Answers, Self::Inbox];
}

/// The steps that follow from a seed. One of two runs has no harm in it.
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
            let harm = Harm::ALL[(draw % 6) as usize];
            Step::Harm { connection, host, harm }
        }
        38 if harmful && choice.one_in(4) => Step::Restart { host },
        38 | 39 => Step::Reconnect { connection },
        _ => Step::Run { us: draw % 20 },
    }
}

/// Steps of which no part can be left out for `fails` to hold. Large parts are tried first.
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
