//! `roce completions` and `roce man`: shell completions and manual pages, generated from the parser.

use std::fs;
use std::io::{self, Write};
use std::iter;

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use softroce::runtime::VARIABLES;
use softroce_cli::{CompletionsArgs, ManArgs};

use crate::output;

/// Runs `roce completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut softroce_cli::table(), "roce", &mut script);
    Ok(output::stdout().write_all(&script)?)
}

/// Runs `roce man`.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let table = built();
    let Some(dir) = &args.dir else {
        return Ok(output::stdout().write_all(&page(&table)?)?);
    };
    for command in iter::once(&table).chain(table.get_subcommands()) {
        let path = dir.join(format!("{}.1", name(command)));
        fs::write(&path, page(command)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the parser with everything derived from it filled in.
fn built() -> Command {
    let mut table = softroce_cli::table().disable_help_subcommand(true);
    table.build();
    table
}

/// Returns the name of a page: `roce`, `roce-perf`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns a manual page.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .source(concat!("softroce ", env!("CARGO_PKG_VERSION")))
        .manual("softroce");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    environment().to_writer(&mut page)?;
    exit_status().to_writer(&mut page)?;
    Ok(page)
}

/// Returns the section on environment variables.
fn environment() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(
        "Where no option says otherwise. A variable that is empty counts as not set.",
    )]);
    for variable in VARIABLES {
        roff.control("TP", []);
        roff.text([bold(variable.name)]);
        roff.text([roman(format!("{}: {}", variable.value, variable.meaning))]);
    }
    roff
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in [
        ("0", "It is as it should be."),
        ("1", "It is not: a problem was found, or messages were lost or damaged."),
        ("2", "An error: the command could not do what it was asked to."),
    ] {
        roff.control("TP", []);
        roff.text([bold(status)]);
        roff.text([roman(meaning)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_with_its_options_and_the_environment() {
        let table = built();
        let main = String::from_utf8(page(&table).unwrap()).unwrap();
        for command in table.get_subcommands() {
            assert!(main.contains(&name(command).replace('-', "\\-")), "{}", name(command));
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            for option in command.get_opts().filter(|option| !option.is_hide_set()) {
                let long = option.get_long().unwrap().replace('-', "\\-");
                assert!(page.contains(&long), "{} lacks --{long}", name(command));
            }
            for variable in VARIABLES {
                assert!(page.contains(variable.name), "{} lacks {}", name(command), variable.name);
            }
        }
    }
}
