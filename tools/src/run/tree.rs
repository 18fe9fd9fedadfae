//! The files that describe the device where the kernel describes RDMA devices, for programs that look there without
//! libibverbs. The library `softroce_paths` redirects them.

use std::env;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use softroce::engine::gid_table;
use softroce::verbs::{Gid, LINK_SPEED};
use softroce::wire::cm::Guid;
use softroce::wire::icrc::crc32;
use softroce_pcap::hex;

use super::folder::Folder;

/// Maximum length of a device name in `ibv_device`.
const MAX_NAME_BYTES: usize = 63;

/// Files of the port with the same text for each device. `ibv_query_port` returns the same values: Ethernet has neither
/// local identifiers nor a subnet manager.
const PORT_FILES: [(&str, &str); 10] = [
    ("link_layer", "Ethernet"),
    ("lid", "0x0"),
    ("lid_mask_count", "0"),
    ("sm_lid", "0x0"),
    ("sm_sl", "0"),
    ("state", "4: ACTIVE"),
    ("phys_state", "5: LinkUp"),
    ("rate", LINK_SPEED.text),
    ("cap_mask", "0x04010000"),
    ("pkeys/0", "0xffff"),
];

/// Character devices that every program may open: links to `/dev/null`. The library answers in the place of the second.
const DEVICE_LINKS: [&str; 2] = ["dev/infiniband/uverbs0", "dev/infiniband/rdma_cm"];

/// The attributes of a device that are known before it is opened.
#[derive(Clone, Copy)]
pub(super) struct DeviceFiles<'a> {
    pub(super) name: &'a str,
    /// Addresses of the device; empty for one that takes a free loopback address.
    pub(super) ips: &'a [IpAddr],
}

impl DeviceFiles<'_> {
    /// Writes the files to a folder below `base`, or below one of this user, and returns the folder. Its name has a
    /// checksum of the files, so that programs of several versions of softroce read different folders. Files that exist
    /// with the right content stay as they are, because other programs may be reading them.
    pub(super) fn write(self, base: Option<&Path>) -> anyhow::Result<PathBuf> {
        ensure!(
            !["", ".", ".."].contains(&self.name)
                && !self.name.contains('/')
                && self.name.len() <= MAX_NAME_BYTES,
            "the device's name is {:?}: expected a file name of at most {MAX_NAME_BYTES} bytes",
            self.name
        );
        let files = self.files()?;
        let root = self::base(base)?.below(self.folder_name(&files).as_ref())?;
        let written = |path: &str| root.path().join(path).display().to_string();
        for (path, text) in files {
            let (folder, name) = parent(&root, &path)?;
            let folder = folder.as_ref().unwrap_or(&root);
            folder.put(name, &text).with_context(|| written(&path))?;
        }
        for device in DEVICE_LINKS {
            let (folder, name) = parent(&root, device)?;
            let folder = folder.as_ref().unwrap_or(&root);
            folder.link(name, "/dev/null").with_context(|| written(device))?;
        }
        Ok(root.path().to_owned())
    }

    /// Returns the name of the folder for these files: the device, its addresses, and a checksum of paths and contents.
    fn folder_name(self, files: &[(String, String)]) -> String {
        let ips: Vec<_> = self.ips.iter().map(ToString::to_string).collect();
        let at = if ips.is_empty() { String::new() } else { format!("@{}", ips.join(",")) };
        let paths = files.iter().flat_map(|(path, text)| [path.as_str(), text]);
        let sum = paths.chain(DEVICE_LINKS).fold(0, |sum, text| {
            // A byte that no path contains ends each text.
            crc32(crc32(sum, text.as_bytes()), &[0])
        });
        format!("{}{at}-{sum:08x}", self.name)
    }

    /// Returns the files and their contents.
    fn files(self) -> anyhow::Result<Vec<(String, String)>> {
        let class = format!("sys/class/infiniband/{}", self.name);
        let port = format!("{class}/ports/1");
        let verbs = "sys/class/infiniband_verbs";
        let mut files = vec![
            (format!("{verbs}/abi_version"), "6".to_owned()),
            (format!("{verbs}/uverbs0/abi_version"), "1".to_owned()),
            (format!("{verbs}/uverbs0/ibdev"), self.name.to_owned()),
            ("sys/class/misc/rdma_cm/abi_version".to_owned(), "4".to_owned()),
        ];
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let ips = if self.ips.is_empty() { &loopback[..] } else { self.ips };
        let table = gid_table(ips);
        let guid = ips.first().map(|ip| groups(&Guid::of(*ip).0.to_be_bytes())).unwrap_or_default();
        for (file, text) in [
            ("node_type", "1: CA"),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hw_rev", "0x0"),
            ("hca_type", "softroce"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
        ] {
            files.push((format!("{class}/{file}"), text.to_owned()));
        }
        files.extend(PORT_FILES.map(|(file, text)| (format!("{port}/{file}"), text.to_owned())));
        let interfaces: Vec<_> = getifaddrs().context("the list of interfaces")?.collect();
        for (index, gid) in table.iter().enumerate() {
            files.push((format!("{port}/gid_attrs/types/{index}"), "RoCE v2".to_owned()));
            // An address that no interface has is reported when the program opens the device.
            if let Some(interface) = interfaces.iter().find(|interface| has(interface, gid.ip())) {
                let name = &interface.interface_name;
                files.push((format!("{port}/gid_attrs/ndevs/{index}"), name.clone()));
                let net = format!("{class}/device/net/{name}");
                files.push((format!("{net}/dev_port"), "0".to_owned()));
            }
            // The kernel writes an empty entry as zeros.
            let known = if self.ips.is_empty() { Gid::EMPTY } else { *gid };
            files.push((format!("{port}/gids/{index}"), groups(&known.0)));
        }
        Ok(files)
    }
}

/// Directory for temporary files where the usual one cannot be written to.
const SHARED_MEMORY: &str = "/dev/shm";

/// Opens the directory for the trees of all devices: `named`, or one of this user.
pub(super) fn base(named: Option<&Path>) -> anyhow::Result<Folder> {
    if let Some(named) = named {
        return Folder::named(named);
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match Folder::own(runtime.as_deref(), &env::temp_dir()) {
        Ok(folder) if folder.is_writable() => Ok(folder),
        // An earlier run may have left a directory on a file system that is read-only now.
        usual => Folder::own(None, Path::new(SHARED_MEMORY)).or(usual),
    }
}

/// Returns a GID or GUID as the kernel writes it: all digits, in groups of four.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<_> = bytes.chunks(2).map(hex).collect();
    groups.join(":")
}

/// Returns whether an interface has an address. The loopback interface has all of 127.0.0.0/8.
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

/// Opens the folder of a file below `root`, and returns it with the name of the file.
fn parent<'a>(root: &Folder, path: &'a str) -> anyhow::Result<(Option<Folder>, &'a OsStr)> {
    let Some((folders, name)) = path.rsplit_once('/') else { return Ok((None, path.as_ref())) };
    let mut folder = None;
    for name in folders.split('/') {
        folder = Some(folder.as_ref().unwrap_or(root).below(name.as_ref())?);
    }
    Ok((folder, name.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::{fs, process};

    use super::*;

    /// Returns a folder that no other test uses.
    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("softroce-test-{}-{name}", process::id()));
        assert!(!folder.exists());
        folder
    }

    fn device<'a>(name: &'a str, ips: &'a [IpAddr]) -> DeviceFiles<'a> {
        DeviceFiles { name, ips }
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
            ("../../device/net/lo/dev_port", "0"),
            ("gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0009"),
            ("gids/3", "fe80:0000:0000:0000:0000:0000:0012:0003"),
            ("gid_attrs/types/3", "RoCE v2"),
            ("pkeys/0", "0xffff"),
        ] {
            let path = match file.strip_prefix("../..") {
                Some(file) => format!("sys/class/infiniband/mine{file}"),
                None => format!("{port}/{file}"),
            };
            assert_eq!(files[&path], text, "{file}");
        }
        for absent in ["gid_attrs/ndevs/1", "gids/4", "gid_attrs/types/4"] {
            assert!(!files.contains_key(&format!("{port}/{absent}")), "{absent}");
        }
        assert_eq!(files["sys/class/infiniband/mine/node_guid"], "0000:7fff:fe00:0009");
    }

    #[test]
    fn free_address_is_not_guessed() {
        let files = device("mine", &[]).files().unwrap();
        assert!(files.iter().any(|(path, _)| path.ends_with("gid_attrs/types/0")));
        let gids = files.iter().filter(|(path, _)| path.contains("/gids/"));
        assert!(gids.clone().all(|(_, text)| *text == groups(&Gid::EMPTY.0)), "{files:?}");
        assert_eq!(gids.count(), 4);
    }

    #[test]
    fn files_with_other_contents_are_rewritten() {
        let folder = folder("mended");
        let root = device("mine", &[]).write(Some(&folder)).unwrap();
        let name = root.strip_prefix(&folder).unwrap().to_str().unwrap();
        assert!(name.starts_with("mine-"), "{name}");
        let file = root.join("sys/class/infiniband/mine/node_type");
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(device("mine", &[]).write(Some(&folder)).unwrap(), root);
        assert_eq!(fs::read_to_string(&file).unwrap(), "1: CA\n");
        let in_it = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(in_it, 8, "no other file is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn files_of_another_version_are_in_another_folder() {
        let device = device("mine", &[]);
        let files = device.files().unwrap();
        let name = device.folder_name(&files);
        assert_eq!(device.folder_name(&device.files().unwrap()), name);
        let mut fewer = files.clone();
        fewer.pop();
        let mut longer = files.clone();
        longer[0].1.push('0');
        let mut moved = files.clone();
        let (path, text) = &mut moved[0];
        path.push_str(&std::mem::take(text));
        for other in [fewer, longer, moved] {
            assert_ne!(device.folder_name(&other), name);
        }
    }

    #[test]
    fn name_that_is_no_file_name_is_refused() {
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "..", "a/b", &long] {
            let said = device(name, &[]).write(None).unwrap_err().to_string();
            let expected =
                format!("the device's name is {name:?}: expected a file name of at most 63 bytes");
            assert_eq!(said, expected);
        }
    }
}
