//! The files that programs find where the kernel would tell of its RDMA devices: what some of them look
//! up themselves, past libibverbs. The library `softroce_paths` leads them there.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{env, process};

use anyhow::{Context, bail, ensure};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::unistd::geteuid;
use softroce::verbs::Gid;

/// The longest name that `ibv_device` has room for.
const LONGEST_NAME: usize = 63;

/// A device, as far as it is known before it is opened.
#[derive(Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    /// None: it will be a loopback address.
    pub(super) ips: &'a [IpAddr],
}

impl Described<'_> {
    /// Writes the files into a folder of their own below `base`, or below one for temporary files, and
    /// answers where. What is there already and right stays as it is: other programs may be looking.
    pub(super) fn write(self, base: Option<&Path>) -> anyhow::Result<PathBuf> {
        ensure!(
            !["", ".", ".."].contains(&self.name)
                && !self.name.contains('/')
                && self.name.len() <= LONGEST_NAME,
            "the device's name is {:?}: expected a file name of at most {LONGEST_NAME} bytes",
            self.name
        );
        let base = match base {
            Some(base) => std::path::absolute(base)?,
            None => own()?,
        };
        let ips: Vec<_> = self.ips.iter().map(ToString::to_string).collect();
        let at = if ips.is_empty() { String::new() } else { format!("@{}", ips.join(",")) };
        let root = base.join(format!("{}{at}", self.name));
        for (path, text) in self.files()? {
            let path = root.join(path);
            put(&path, &text).with_context(|| path.display().to_string())?;
        }
        // A device of characters that may be opened.
        let device = root.join("dev/infiniband/uverbs0");
        link(&device).with_context(|| device.display().to_string())?;
        Ok(root)
    }

    /// The files, and what is in them.
    fn files(self) -> anyhow::Result<Vec<(String, String)>> {
        let class = format!("sys/class/infiniband/{}", self.name);
        let port = format!("{class}/ports/1");
        let verbs = "sys/class/infiniband_verbs";
        let mut files = vec![
            (format!("{verbs}/abi_version"), "6".to_owned()),
            (format!("{verbs}/uverbs0/abi_version"), "1".to_owned()),
            (format!("{verbs}/uverbs0/ibdev"), self.name.to_owned()),
            (format!("{class}/node_type"), "1: CA".to_owned()),
            (format!("{port}/link_layer"), "Ethernet".to_owned()),
        ];
        let interfaces: Vec<_> = getifaddrs().context("the list of interfaces")?.collect();
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let ips = if self.ips.is_empty() { &loopback[..] } else { self.ips };
        for (index, ip) in ips.iter().enumerate() {
            files.push((format!("{port}/gid_attrs/types/{index}"), "RoCE v2".to_owned()));
            // Of an address that no interface has yet, the program will be told when it opens it.
            if let Some(interface) = interfaces.iter().find(|interface| has(interface, *ip)) {
                let name = interface.interface_name.clone();
                files.push((format!("{port}/gid_attrs/ndevs/{index}"), name));
            }
        }
        for (index, ip) in self.ips.iter().enumerate() {
            files.push((format!("{port}/gids/{index}"), groups(Gid::from(*ip))));
        }
        Ok(files)
    }
}

/// A GID as the kernel writes it: all of its digits, in groups of four.
fn groups(gid: Gid) -> String {
    let pair = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let groups: Vec<_> = gid.0.chunks(2).map(pair).collect();
    groups.join(":")
}

/// Whether an interface has an address. The one for loopback has all that begin with 127.
fn has(interface: &InterfaceAddress, ip: IpAddr) -> bool {
    let Some(address) = &interface.address else { return false };
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(_), _) if ip.is_loopback() && ip.is_ipv4() => {
            interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
        }
        (Some(v4), _) => v4.ip() == ip,
        (_, Some(v6)) => v6.ip() == ip,
        _ => false,
    }
}

/// The folder of this user among those for temporary files. There anybody could have made it, to tell our
/// programs what he likes.
fn own() -> anyhow::Result<PathBuf> {
    let user = geteuid();
    let path = env::temp_dir().join(format!("softroce-{user}"));
    if let Err(error) = DirBuilder::new().mode(0o755).create(&path)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| {
            format!("{}: SOFTROCE_PATHS can name another directory", path.display())
        });
    }
    let found = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
    if !found.is_dir() || found.uid() != user.as_raw() || found.mode() & 0o022 != 0 {
        bail!(
            "{}: not a directory of ours that only we may write to; SOFTROCE_PATHS can name another",
            path.display()
        );
    }
    Ok(path)
}

/// Has a file say `text`, at once for whoever reads it.
fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let text = format!("{text}\n");
    if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension(process::id().to_string());
    fs::write(&new, text)?;
    Ok(fs::rename(&new, path)?)
}

/// Has `path` lead to a device that may be opened.
fn link(path: &Path) -> anyhow::Result<()> {
    const DEVICE: &str = "/dev/null";
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match symlink(DEVICE, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            ensure!(fs::read_link(path)? == Path::new(DEVICE), "not a link to {DEVICE}");
            Ok(())
        }
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A folder that nobody else has.
    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("softroce-test-{}-{name}", process::id()));
        assert!(!folder.exists());
        folder
    }

    fn device<'a>(name: &'a str, ips: &'a [IpAddr]) -> Described<'a> {
        Described { name, ips }
    }

    #[test]
    fn each_address_is_a_gid() {
        let ips = ["127.0.0.9", "fe80::12:3"].map(|ip| ip.parse().unwrap());
        let files: BTreeMap<_, _> = device("mine", &ips).files().unwrap().into_iter().collect();
        let port = "sys/class/infiniband/mine/ports/1";
        for (file, text) in [
            ("gid_attrs/types/1", "RoCE v2"),
            ("gid_attrs/ndevs/0", "lo"),
            ("gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0009"),
            ("gids/1", "fe80:0000:0000:0000:0000:0000:0012:0003"),
        ] {
            assert_eq!(files[&format!("{port}/{file}")], text, "{file}");
        }
        assert!(!files.contains_key(&format!("{port}/gid_attrs/ndevs/1")));
    }

    #[test]
    fn the_address_that_it_will_have_is_not_guessed() {
        let files = device("mine", &[]).files().unwrap();
        assert!(files.iter().any(|(path, _)| path.ends_with("gid_attrs/types/0")));
        assert!(!files.iter().any(|(path, _)| path.contains("/gids/")), "{files:?}");
    }

    #[test]
    fn what_was_written_before_is_mended() {
        let folder = folder("mended");
        let root = device("mine", &[]).write(Some(&folder)).unwrap();
        assert_eq!(root, folder.join("mine"));
        let file = root.join("sys/class/infiniband/mine/node_type");
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(device("mine", &[]).write(Some(&folder)).unwrap(), root);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1: CA\n");
        let in_it = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(in_it, 2, "nothing else is left there");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_that_is_no_file_name_is_refused() {
        let long = "n".repeat(LONGEST_NAME + 1);
        for name in ["", "..", "a/b", &long] {
            let said = device(name, &[]).write(None).unwrap_err().to_string();
            let expected =
                format!("the device's name is {name:?}: expected a file name of at most 63 bytes");
            assert_eq!(said, expected);
        }
    }
}
