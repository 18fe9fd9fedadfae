//! The outcome of a command: its exit status, or the text of its error.

/// Exit status of a command without an error; an error is exit status 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Exit status 0.
    Yes,
    /// Exit status 1.
    No,
    /// Exit status of a program that the command ran.
    Status(u8),
}

/// Returns the text of an error with its causes, without those that the text already contains.
pub(crate) fn text_of(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        _ if text.contains(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}
