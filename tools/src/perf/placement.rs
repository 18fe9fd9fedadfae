//! Placement of the two sides of a local test on CPUs.
//!
//! Both sides poll without a pause. The scheduler sometimes puts both on one CPU, or moves them, and the result then
//! reflects that instead of the network.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Core of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Core {
    First,
    Second,
}

/// Pins the calling thread, and the threads that it starts, to a core. Does nothing on a machine with one core.
pub(super) fn pin_to(core: Core) {
    let thread = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(thread) else { return };
    let cpus: Vec<_> =
        (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu) == Ok(true)).collect();
    let Some((first, second)) = two_cores(&cpus, siblings) else { return };
    let mut one = CpuSet::new();
    let cpu = if core == Core::First { first } else { second };
    // If the kernel refuses, the test runs without placement.
    let _ = one.set(cpu).and_then(|()| sched_setaffinity(thread, &one));
}

/// Returns the first two of `cpus` that are not hardware threads of one core.
fn two_cores(cpus: &[usize], siblings: impl Fn(usize) -> String) -> Option<(usize, usize)> {
    let first = *cpus.first()?;
    let core = siblings(first);
    let second = cpus[1..].iter().find(|&&cpu| siblings(cpu) != core)?;
    Some((first, *second))
}

/// Returns the hardware threads of the core of a CPU, as the kernel lists them.
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
