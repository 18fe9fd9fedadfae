//! Paths.

use softroce::cm::CmPath;
use softroce::verbs::{Gid, Mtu, PKey};

use crate::abi::{
    PATH_FLAGS, PathAnswer, PathData, PathRecord, SaPathLimits, SaPathRec, UserPathLimits,
    UserPathRec,
};

/// Selector "exactly" of MTU, rate and packet life time (`IB_SA_EQ`).
const EXACTLY: u8 = 2;

/// Rate of a path: 10 Gbit/s (`IBV_RATE_10_GBPS`).
const RATE: u8 = 3;

/// Returns a path for QUERY_ROUTE.
pub(crate) fn user_path(path: &CmPath) -> UserPathRec {
    UserPathRec {
        dgid: path.destination.0,
        sgid: path.source.0,
        dlid_be: 0,
        slid_be: 0,
        raw_traffic: 0,
        flow_label_be: path.flow_label.to_be(),
        reversible: 1,
        mtu: path.mtu as u32,
        pkey_be: path.pkey.0.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        numb_path: 1,
        sl: path.service_level,
        limits: UserPathLimits {
            mtu_selector: EXACTLY,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: path.life_time,
            preference: 0,
        },
    }
}

/// Returns a path that has no more than addresses.
pub(crate) fn unknown_path(source: Option<Gid>, destination: Option<Gid>) -> UserPathRec {
    let gid = |gid: Option<Gid>| gid.map_or([0; 16], |gid| gid.0);
    UserPathRec {
        dgid: gid(destination),
        sgid: gid(source),
        dlid_be: 0,
        slid_be: 0,
        raw_traffic: 0,
        flow_label_be: 0,
        reversible: 0,
        mtu: 0,
        pkey_be: PKey::DEFAULT.0.to_be(),
        hop_limit: 0,
        traffic_class: 0,
        numb_path: 0,
        sl: 0,
        limits: UserPathLimits {
            mtu_selector: 0,
            rate_selector: 0,
            rate: 0,
            packet_life_time_selector: 0,
            packet_life_time: 0,
            preference: 0,
        },
    }
}

/// Returns a path for QUERY, or the answer that there is none.
pub(crate) fn path_answer(path: Option<&CmPath>) -> PathAnswer {
    let nothing = CmPath {
        source: Gid([0; 16]),
        destination: Gid([0; 16]),
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        mtu: Mtu::Mtu1024,
        pkey: PKey::DEFAULT,
        life_time: 0,
    };
    let found = path.unwrap_or(&nothing);
    let label_hops = found.flow_label << 8 | u32::from(found.hop_limit);
    let record = PathRecord {
        service_id: [0; 8],
        dgid: found.destination.0,
        sgid: found.source.0,
        dlid: [0; 2],
        slid: [0; 2],
        flow_label_hop_limit: label_hops.to_be_bytes(),
        traffic_class: found.traffic_class,
        reversible_numb_path: 1 << 7 | 1,
        pkey: found.pkey.0.to_be_bytes(),
        class_sl: u16::from(found.service_level).to_be_bytes(),
        mtu: EXACTLY << 6 | found.mtu as u8,
        rate: EXACTLY << 6 | RATE,
        packet_life_time: EXACTLY << 6 | found.life_time,
        preference: 0,
        reserved: [0; 6],
    };
    let path_count = path.is_some().into();
    let path = PathData { flags: PATH_FLAGS, reserved: 0, path: record };
    PathAnswer { path_count, reserved: 0, path }
}

/// Returns the path of a record that the program sets. `None` for an MTU that does not exist.
pub(crate) fn path(record: &PathRecord) -> Option<CmPath> {
    let label_hops = u32::from_be_bytes(record.flow_label_hop_limit);
    let [.., hop_limit] = record.flow_label_hop_limit;
    let [_, class_sl] = record.class_sl;
    Some(CmPath {
        source: Gid(record.sgid),
        destination: Gid(record.dgid),
        flow_label: label_hops >> 8 & 0xf_ffff,
        traffic_class: record.traffic_class,
        hop_limit,
        service_level: class_sl & 0xf,
        mtu: Mtu::from_code(record.mtu & 0x3f)?,
        pkey: PKey(u16::from_be_bytes(record.pkey)),
        life_time: record.packet_life_time & 0x3f,
    })
}

/// Returns the path of a kernel's answer as programs have it.
pub(crate) fn sa_path(path: &UserPathRec) -> SaPathRec {
    SaPathRec {
        dgid: path.dgid,
        sgid: path.sgid,
        dlid_be: path.dlid_be,
        slid_be: path.slid_be,
        raw_traffic: path.raw_traffic,
        flow_label_be: path.flow_label_be,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reserved: 0,
        reversible: path.reversible,
        numb_path: path.numb_path,
        padding: 0,
        pkey_be: path.pkey_be,
        limits: SaPathLimits {
            sl: path.sl,
            mtu_selector: path.limits.mtu_selector,
            mtu: u8::try_from(path.mtu).unwrap_or_default(),
            rate_selector: path.limits.rate_selector,
            rate: path.limits.rate,
            packet_life_time_selector: path.limits.packet_life_time_selector,
            packet_life_time: path.limits.packet_life_time,
            preference: path.limits.preference,
        },
    }
}

/// Returns the path of a program as the kernel takes it.
pub(crate) fn kernel_path(path: &SaPathRec) -> UserPathRec {
    UserPathRec {
        dgid: path.dgid,
        sgid: path.sgid,
        dlid_be: path.dlid_be,
        slid_be: path.slid_be,
        raw_traffic: path.raw_traffic,
        flow_label_be: path.flow_label_be,
        reversible: path.reversible,
        mtu: path.limits.mtu.into(),
        pkey_be: path.pkey_be,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        numb_path: path.numb_path,
        sl: path.limits.sl,
        limits: UserPathLimits {
            mtu_selector: path.limits.mtu_selector,
            rate_selector: path.limits.rate_selector,
            rate: path.limits.rate,
            packet_life_time_selector: path.limits.packet_life_time_selector,
            packet_life_time: path.limits.packet_life_time,
            preference: path.limits.preference,
        },
    }
}
