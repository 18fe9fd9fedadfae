//! Names of devices in lists and on the command line.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use softroce::runtime::control::SocketName;
use softroce_cli::ALL_DEVICES;

use super::status::{Status, Statuses};

/// A device of a running process.
#[derive(Clone, Debug)]
pub(super) struct LiveDevice {
    pub(super) socket: SocketName,
    pub(super) status: Status,
    /// The device's name, with the number of the process behind it if several devices have that name.
    pub(super) name: String,
}

impl LiveDevice {
    /// Returns the text that tells the device from others.
    pub(super) fn description(&self) -> String {
        description(&self.status)
    }
}

/// Returns the process, program and address of a device.
pub(super) fn description(status: &Status) -> String {
    format!("PID {}, {}, {}", status.pid, status.program, status.ip)
}

/// Returns the devices of this user, each with a name that no other has.
pub(super) fn devices() -> anyhow::Result<Vec<LiveDevice>> {
    Ok(named(Statuses::default().query()?))
}

fn named(found: BTreeMap<SocketName, Status>) -> Vec<LiveDevice> {
    let plain: Vec<_> = found.values().map(|status| plain_name(&status.device)).collect();
    let count = |name: &str| plain.iter().filter(|other| *other == name).count();
    let mut devices: Vec<LiveDevice> = Vec::new();
    for ((socket, status), plain) in found.into_iter().zip(&plain) {
        let mut name = match count(plain) {
            1 if plain != ALL_DEVICES => plain.clone(),
            _ => format!("{plain}-{}", status.pid),
        };
        if devices.iter().any(|other| other.name == name) {
            // Several devices of one process, or processes of several PID namespaces.
            name = format!("{name}-{}", status.ip).replace(':', "_");
        }
        devices.push(LiveDevice { socket, status, name });
    }
    devices
}

/// Returns the name of a device in letters that need no quotes.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

/// Finds the device with a name, process number or address.
pub(super) fn find(wanted: &str) -> anyhow::Result<LiveDevice> {
    let devices = devices()?;
    let is_wanted = |device: &&LiveDevice| {
        let Status { device: name, pid, ip, .. } = &device.status;
        wanted == device.name
            || wanted == name
            || wanted == pid.to_string()
            || wanted == ip.to_string()
            || wanted == format!("{}-{pid}", plain_name(name))
    };
    let mut found: Vec<_> = devices.iter().filter(is_wanted).collect();
    let list = |devices: &[&LiveDevice]| {
        let line = |device: &&LiveDevice| format!("{} ({})", device.name, device.description());
        devices.iter().map(line).collect::<Vec<_>>().join("; ")
    };
    ensure!(
        !devices.is_empty(),
        "{wanted}: no such device: no program of this user in this network namespace has one"
    );
    match (found.pop(), found.is_empty()) {
        (Some(device), true) => Ok(device.clone()),
        (Some(device), false) => {
            found.push(device);
            bail!("{wanted}: expected one device, found {}: {}", found.len(), list(&found))
        }
        (None, _) => {
            bail!(
                "{wanted}: no such device; there are: {}",
                list(&devices.iter().collect::<Vec<_>>())
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(device: &str, pid: u32, ip: &str) -> (SocketName, Status) {
        let ip = ip.parse().unwrap();
        let line = serde_json::json!({
            "device": device, "ip": ip, "via": "udp", "pid": pid, "program": "p"
        });
        let name = SocketName { pid, ip, number: 0 };
        (name, serde_json::from_value(line).unwrap())
    }

    fn names(statuses: impl IntoIterator<Item = (SocketName, Status)>) -> Vec<String> {
        named(statuses.into_iter().collect()).into_iter().map(|device| device.name).collect()
    }

    #[test]
    fn only_device_with_a_name_has_it() {
        assert_eq!(names([status("softroce0", 7, "127.0.0.1")]), ["softroce0"]);
        let two = [status("softroce0", 7, "127.0.0.1"), status("softroce0", 8, "127.0.0.2")];
        assert_eq!(names(two), ["softroce0-7", "softroce0-8"]);
        let same_process = [status("softroce0", 7, "127.0.0.1"), status("softroce0", 7, "fd00::2")];
        assert_eq!(names(same_process), ["softroce0-7", "softroce0-7-fd00__2"]);
        assert_eq!(names([status("my dev/1", 7, "127.0.0.1")]), ["my_dev_1"]);
        assert_eq!(names([status(ALL_DEVICES, 7, "127.0.0.1")]), ["softroce-7"]);
    }
}
