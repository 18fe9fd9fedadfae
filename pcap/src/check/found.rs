//! Findings without the host at fault.

use super::{Loss, Rule, Severity};

/// A finding without the hosts that it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RawFinding {
    pub(super) rule: Rule,
    pub(super) severity: Severity,
    pub(super) role: Role,
    pub(super) seen: String,
    pub(super) expected: String,
    pub(super) loss: Option<Box<Loss>>,
}

/// The party to which a finding applies, relative to the packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Sender,
    Receiver,
    Network,
    Unknown,
}

impl RawFinding {
    pub(super) fn new(
        rule: Rule,
        severity: Severity,
        role: Role,
        seen: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (seen, expected) = (seen.into(), expected.into());
        Self { rule, severity, role, seen, expected, loss: None }
    }

    pub(super) fn sender(
        rule: Rule,
        severity: Severity,
        seen: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::new(rule, severity, Role::Sender, seen, expected)
    }

    pub(super) fn violation(
        rule: Rule,
        seen: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::sender(rule, Severity::Violation, seen, expected)
    }

    /// Downgrades the finding to a note, because it may be wrong.
    pub(super) fn doubt(&mut self) {
        self.severity = Severity::Note;
        self.role = Role::Unknown;
    }

    pub(super) fn note(rule: Rule, seen: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::sender(rule, Severity::Note, seen, expected)
    }
}
