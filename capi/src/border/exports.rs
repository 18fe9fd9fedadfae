//! The names under which C finds the functions, each with the version that libibverbs has given it.
//!
//! Nothing but an assembler knows of versions. A label `name@@VERSION` jumps to the function; the nodes
//! of the versions are declared by `build.rs`, in a script that the linker puts beside the compiler's
//! own.

use std::arch::global_asm;

use crate::{
    channel, context, cq, device, events, info, mr, open, pd, qp, rates, srq, text, unsupported,
};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "b"
    };
}

/// Exports functions by name, `@@` and version, or `@` and version where programs must not be linked
/// to it any more.
macro_rules! export {
    ($($name:literal $at:literal $version:literal => $function:path,)*) => {$(
        global_asm!(
            ".pushsection .text.exports,\"ax\",@progbits",
            concat!(".globl __softroce.", $name, ".", $version),
            concat!(".type __softroce.", $name, ".", $version, ",@function"),
            concat!("__softroce.", $name, ".", $version, ":"),
            concat!(jump!(), " {function}"),
            concat!(".size __softroce.", $name, ".", $version, ", . - __softroce.", $name, ".", $version),
            concat!(".symver __softroce.", $name, ".", $version, ", ", $name, $at, $version),
            ".popsection",
            function = sym $function,
        );
    )*};
}

export! {
    "ibv_copy_path_rec_from_kern" "@@" "IBVERBS_1.0" => unsupported::error,
    "ibv_copy_path_rec_to_kern" "@@" "IBVERBS_1.0" => unsupported::error,
    "ibv_copy_qp_attr_from_kern" "@@" "IBVERBS_1.0" => unsupported::error,
    "ibv_create_comp_channel" "@@" "IBVERBS_1.0" => channel::create_comp_channel,
    "ibv_destroy_comp_channel" "@@" "IBVERBS_1.0" => channel::destroy_comp_channel,
    "ibv_get_sysfs_path" "@@" "IBVERBS_1.0" => device::get_sysfs_path,
    "ibv_rate_to_mult" "@@" "IBVERBS_1.0" => rates::rate_to_mult,
    "ibv_read_sysfs_file" "@@" "IBVERBS_1.0" => device::read_sysfs_file,
    "mult_to_ibv_rate" "@@" "IBVERBS_1.0" => rates::mult_to_rate,
    "ibv_ack_async_event" "@@" "IBVERBS_1.1" => events::ack_async_event,
    "ibv_ack_cq_events" "@@" "IBVERBS_1.1" => channel::ack_cq_events,
    "ibv_alloc_pd" "@@" "IBVERBS_1.1" => pd::alloc_pd,
    "ibv_attach_mcast" "@@" "IBVERBS_1.1" => qp::attach_mcast,
    "ibv_close_device" "@@" "IBVERBS_1.1" => context::close_device,
    "ibv_copy_ah_attr_from_kern" "@@" "IBVERBS_1.1" => unsupported::error,
    "ibv_create_ah" "@@" "IBVERBS_1.1" => pd::create_ah,
    "ibv_create_ah_from_wc" "@@" "IBVERBS_1.1" => pd::create_ah_from_wc,
    "ibv_create_cq" "@@" "IBVERBS_1.1" => cq::create_cq,
    "ibv_create_qp" "@@" "IBVERBS_1.1" => qp::create_qp,
    "ibv_create_srq" "@@" "IBVERBS_1.1" => srq::create_srq,
    "ibv_dealloc_pd" "@@" "IBVERBS_1.1" => pd::dealloc_pd,
    "ibv_dereg_mr" "@@" "IBVERBS_1.1" => mr::dereg_mr,
    "ibv_destroy_ah" "@@" "IBVERBS_1.1" => pd::destroy_ah,
    "ibv_destroy_cq" "@@" "IBVERBS_1.1" => cq::destroy_cq,
    "ibv_destroy_qp" "@@" "IBVERBS_1.1" => qp::destroy_qp,
    "ibv_destroy_srq" "@@" "IBVERBS_1.1" => srq::destroy_srq,
    "ibv_detach_mcast" "@@" "IBVERBS_1.1" => qp::detach_mcast,
    "ibv_dofork_range" "@@" "IBVERBS_1.1" => info::fork_range,
    "ibv_dontfork_range" "@@" "IBVERBS_1.1" => info::fork_range,
    "ibv_event_type_str" "@@" "IBVERBS_1.1" => text::event_type_str,
    "ibv_fork_init" "@@" "IBVERBS_1.1" => info::fork_init,
    "ibv_free_device_list" "@@" "IBVERBS_1.1" => device::free_device_list,
    "ibv_get_async_event" "@@" "IBVERBS_1.1" => events::get_async_event,
    "ibv_get_cq_event" "@@" "IBVERBS_1.1" => channel::get_cq_event,
    "ibv_get_device_guid" "@@" "IBVERBS_1.1" => device::get_device_guid,
    "ibv_get_device_list" "@@" "IBVERBS_1.1" => device::get_device_list,
    "ibv_get_device_name" "@@" "IBVERBS_1.1" => device::get_device_name,
    "ibv_init_ah_from_wc" "@@" "IBVERBS_1.1" => pd::init_ah_from_wc,
    "ibv_modify_qp" "@@" "IBVERBS_1.1" => qp::modify_qp,
    "ibv_modify_srq" "@@" "IBVERBS_1.1" => srq::modify_srq,
    "ibv_node_type_str" "@@" "IBVERBS_1.1" => text::node_type_str,
    "ibv_open_device" "@@" "IBVERBS_1.1" => context::open_device,
    "ibv_port_state_str" "@@" "IBVERBS_1.1" => text::port_state_str,
    "ibv_query_device" "@@" "IBVERBS_1.1" => info::query_device,
    "ibv_query_gid" "@@" "IBVERBS_1.1" => info::query_gid,
    "ibv_query_pkey" "@@" "IBVERBS_1.1" => info::query_pkey,
    "ibv_query_port" "@@" "IBVERBS_1.1" => info::query_port,
    "ibv_query_qp" "@@" "IBVERBS_1.1" => qp::query_qp,
    "ibv_query_srq" "@@" "IBVERBS_1.1" => srq::query_srq,
    "ibv_rate_to_mbps" "@@" "IBVERBS_1.1" => rates::rate_to_mbps,
    "ibv_reg_mr" "@@" "IBVERBS_1.1" => mr::reg_mr,
    "ibv_register_driver" "@" "IBVERBS_1.1" => unsupported::nothing,
    "ibv_rereg_mr" "@@" "IBVERBS_1.1" => mr::rereg_mr,
    "ibv_resize_cq" "@@" "IBVERBS_1.1" => cq::resize_cq,
    "ibv_resolve_eth_l2_from_gid" "@@" "IBVERBS_1.1" => unsupported::error,
    "ibv_wc_status_str" "@@" "IBVERBS_1.1" => text::wc_status_str,
    "mbps_to_ibv_rate" "@@" "IBVERBS_1.1" => rates::mbps_to_rate,
    "ibv_get_pkey_index" "@@" "IBVERBS_1.5" => info::get_pkey_index,
    "ibv_qp_to_qp_ex" "@@" "IBVERBS_1.6" => qp::qp_to_qp_ex,
    "ibv_reg_mr_iova" "@@" "IBVERBS_1.7" => mr::reg_mr_iova,
    "ibv_reg_mr_iova2" "@@" "IBVERBS_1.8" => mr::reg_mr_iova,
    "ibv_get_device_index" "@@" "IBVERBS_1.9" => device::get_device_index,
    "ibv_import_device" "@@" "IBVERBS_1.10" => unsupported::null,
    "ibv_import_mr" "@@" "IBVERBS_1.10" => unsupported::null,
    "ibv_import_pd" "@@" "IBVERBS_1.10" => unsupported::null,
    "ibv_query_ece" "@@" "IBVERBS_1.10" => qp::ece,
    "ibv_set_ece" "@@" "IBVERBS_1.10" => qp::ece,
    "ibv_unimport_mr" "@@" "IBVERBS_1.10" => unsupported::nothing,
    "ibv_unimport_pd" "@@" "IBVERBS_1.10" => unsupported::nothing,
    "_ibv_query_gid_ex" "@@" "IBVERBS_1.11" => info::query_gid_ex,
    "_ibv_query_gid_table" "@@" "IBVERBS_1.11" => info::query_gid_table,
    "ibv_reg_dmabuf_mr" "@@" "IBVERBS_1.12" => unsupported::null,
    "ibv_import_dm" "@@" "IBVERBS_1.13" => unsupported::null,
    "ibv_is_fork_initialized" "@@" "IBVERBS_1.13" => info::is_fork_initialized,
    "ibv_unimport_dm" "@@" "IBVERBS_1.13" => unsupported::nothing,
    "ibv_query_qp_data_in_order" "@@" "IBVERBS_1.14" => info::query_qp_data_in_order,
    "ibv_alloc_dmah" "@@" "IBVERBS_1.15" => unsupported::null,
    "ibv_dealloc_dmah" "@@" "IBVERBS_1.15" => unsupported::error,
    "ibv_reg_mr_ex" "@@" "IBVERBS_1.15" => unsupported::null,
    "ibv_dm_export_dmabuf_fd" "@@" "IBVERBS_1.16" => unsupported::failure,
    "ibv_query_port_speed" "@@" "IBVERBS_1.16" => unsupported::error,
    "ibv_alloc_buf" "@@" "IBVERBS_1.17" => unsupported::null,
    "ibv_free_buf" "@@" "IBVERBS_1.17" => unsupported::nothing,
    "ibv_reg_buf_mr" "@@" "IBVERBS_1.17" => unsupported::null,
    // For our library of paths, which stands before `_exit`.
    "softroce_flush" "@@" "SOFTROCE_PRIVATE" => open::flush,
}

// Private functions, each under every version that a release has given it: of `private.txt`.
include!(concat!(env!("OUT_DIR"), "/private.rs"));
