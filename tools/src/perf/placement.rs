//! Which CPU each side runs on, when both are on this machine.
//!
//! Both poll without a pause. Left to the scheduler they meet on one CPU now and then, or move, and
//! a result says more about that than about the network.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// One of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Core {
    First,
    Second,
}

/// Keeps the calling thread, and those it starts, on this core. Does nothing on a machine with one
/// core.
pub(super) fn settle(core: Core) {
    let thread = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(thread) else { return };
    let cpus: Vec<_> =
        (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu) == Ok(true)).collect();
    let Some((first, second)) = two_cores(&cpus, siblings) else { return };
    let mut one = CpuSet::new();
    let cpu = if core == Core::First { first } else { second };
    // Without the right to do so, the test runs where the kernel puts it.
    let _ = one.set(cpu).and_then(|()| sched_setaffinity(thread, &one));
}

/// The first two of `cpus` that are not hardware threads of one core.
fn two_cores(cpus: &[usize], siblings: impl Fn(usize) -> String) -> Option<(usize, usize)> {
    let first = *cpus.first()?;
    let core = siblings(first);
    let second = cpus[1..].iter().find(|&&cpu| siblings(cpu) != core)?;
    Some((first, *second))
}

/// The hardware threads of a core, as the kernel lists them for one of its CPUs.
fn siblings(cpu: usize) -> String {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    // Without a topology, every CPU counts as a core.
    fs::read_to_string(file).unwrap_or_else(|_| cpu.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sides_get_different_cores() {
        let pairs = |cpu: usize| format!("{},{}", cpu & !1, cpu | 1);
        assert_eq!(two_cores(&[0, 1, 2, 3], pairs), Some((0, 2)));
        assert_eq!(two_cores(&[3, 4], pairs), Some((3, 4)));
        assert_eq!(two_cores(&[0, 1], pairs), None);
        assert_eq!(two_cores(&[5], pairs), None);
        assert_eq!(two_cores(&[], pairs), None);
    }
}
