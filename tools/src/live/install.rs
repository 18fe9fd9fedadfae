//! The link in Wireshark's extcap folder.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use softroce_cli::EXTCAP_NAME;

/// Puts a link to this command into a folder, or into that of Wireshark. Returns lines for the user.
pub(super) fn install(dir: Option<&Path>) -> anyhow::Result<String> {
    let dir = match dir {
        Some(dir) => dir.to_owned(),
        None => wireshark_folder()?,
    };
    let (target, link) = (env::current_exe()?, dir.join(EXTCAP_NAME));
    let made = fs::create_dir_all(&dir).and_then(|()| replace(&target, &link));
    made.with_context(|| link.display().to_string())?;
    Ok(format!("{} -> {}\n", link.display(), target.display()))
}

/// Makes the link, in place of an earlier one.
fn replace(target: &Path, link: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(link) {
        Ok(found) if found.is_symlink() => fs::remove_file(link)?,
        // Another file is left alone: the link cannot be made.
        _ => {}
    }
    symlink(target, link)
}

/// Returns the personal extcap folder of Wireshark.
fn wireshark_folder() -> anyhow::Result<PathBuf> {
    for program in ["tshark", "wireshark"] {
        let mut command = Command::new(program);
        let output = command.args(["-G", "folders"]).stdin(Stdio::null()).stderr(Stdio::null());
        if let Ok(output) = output.output()
            && let Some(folder) = folder(&String::from_utf8_lossy(&output.stdout))
        {
            return Ok(folder);
        }
    }
    bail!("neither tshark nor wireshark is found: expected the extcap folder with --dir DIRECTORY")
}

/// Finds the personal extcap folder in the output of `tshark -G folders`. Wireshark before 4.2 does not list it: it is in
/// the folder of the personal configuration.
fn folder(text: &str) -> Option<PathBuf> {
    let of = |wanted: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(PathBuf::from(found.1.trim()))
    };
    let configuration = || Some(of("Personal configuration")?.join("extcap"));
    of("Personal Extcap path").or_else(configuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_the_personal_one() {
        let old = "System:              \t/etc\nPersonal configuration:\t/home/a/.config/wireshark\n\
                   Extcap path:         \t/usr/lib/wireshark/extcap\n";
        assert_eq!(folder(old), Some("/home/a/.config/wireshark/extcap".into()));
        let new = format!("{old}Personal Extcap path:\t/home/a/.local/lib/x\n");
        assert_eq!(folder(&new), Some("/home/a/.local/lib/x".into()));
        assert_eq!(folder("Temp:\t/tmp\n"), None);
    }

    #[test]
    fn link_replaces_a_link_and_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/b");
        for _ in 0..2 {
            let line = install(Some(&dir)).unwrap();
            assert!(
                line.starts_with(&format!("{} -> ", dir.join(EXTCAP_NAME).display())),
                "{line}"
            );
        }
        let link = dir.join(EXTCAP_NAME);
        assert_eq!(fs::read_link(&link).unwrap(), env::current_exe().unwrap());
        fs::remove_file(&link).unwrap();
        fs::write(&link, "mine").unwrap();
        assert!(install(Some(&dir)).is_err());
        assert_eq!(fs::read(&link).unwrap(), b"mine");
    }
}
