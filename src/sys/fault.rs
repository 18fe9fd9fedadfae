//! Handler of SIGSEGV and SIGBUS that stands before the program's, and ends [copies](super::copies) at missing pages.
//!
//! An access without a page behind it raises SIGSEGV, or SIGBUS where a file that is mapped has become shorter. The
//! handler ends a copy of the library that faulted. All other signals belong to the program: the handler continues
//! as the kernel would with the action of the program.
//!
//! | action of the program | the handler |
//! |---|---|
//! | a handler | jumps to it, with the stack and registers that the kernel has set up |
//! | `SIG_DFL` | restores the default action. The instruction faults again and ends the process; a signal that was sent is sent again |
//! | `SIG_IGN` | ignores a signal that was sent, and treats a fault as `SIG_DFL`, as the kernel does |
//!
//! The kernel has the flags and the mask of the program's action too, so it chooses the stack and blocks signals as the
//! program has asked. `SA_RESETHAND` alone is done [here](Record::take), for the kernel would remove this handler.
//!
//! # How the handler stays the first
//!
//! - [`install`] runs at each registration of memory. It takes the actions in the kernel as the program's, and sets its own.
//! - `softroce-paths`, which `roce run` loads, replaces `sigaction` and its like, and calls [`change`]. The program sets
//!   an action, the next moment the handler is in front again, and the program reads its own action. A missing page
//!   that is found in between is a signal to the program.
//! - Otherwise a program that sets a handler takes the place of this one, until the next registration. It may then call
//!   this one as its predecessor, so the action before it is [kept](Slot::take_behind). A second handler that is set so stays
//!   in front.
//!
//! Memory is copied by calls to the system ([`memory`](super::memory)) while the handler is not in front, in threads that
//! block one of the signals, under valgrind, and where a [trial](super::probe) at the first registration shows that faults
//! cannot be recognized. [`is_ready`] tells which.
//!
//! # Why this is sound
//!
//! [`copies`](super::copies) says why a copy may be ended. The handler reads atomics only, and enters the kernel without the
//! C library. Functions that change actions hold a [lock](Lock) with all signals blocked, so no handler of the same
//! thread waits for it. A child of `fork` gets it free: what it protects are words that are valid one by one.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::process;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, siginfo_t, ucontext_t};
use rustix::thread::sched_yield;

use super::actions::{SA_RESTORER, SavedMask, SignalAction, send_to_self, set_of, thread};
use super::ffi::{BlockedSignals, at_fork};
use super::{copies, probe};

/// Signals of missing pages.
const SIGNALS: [c_int; 2] = [SIGSEGV, SIGBUS];

/// Flags of `sigaction`, as the kernel has them.
const SA_SIGINFO: u64 = libc::SA_SIGINFO as u64;
const SA_ONSTACK: u64 = libc::SA_ONSTACK as u64;
const SA_RESTART: u64 = libc::SA_RESTART as u64;
const SA_RESETHAND: u64 = 0x8000_0000;

/// Bit of a handler with [`SA_RESETHAND`] in a [`Record`]. No address of a program has it.
const RESETHAND_BIT: usize = 1 << 63;

/// `si_code` of a memory error that no instruction of this thread has met.
const BUS_MCEERR_AO: c_int = 5;

/// Number of copies of a thread between two checks that the handler is in front.
const COPIES_PER_CHECK: u32 = 64;

/// Whether the handler is installed: before the first registration, after it, or never.
static STATE: AtomicU8 = AtomicU8::new(State::New as u8);

#[repr(u8)]
enum State {
    New,
    Installed,
    Unusable,
}

/// Process that has installed the handler. A child of `vfork` shares this memory, and has its own actions.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The program's actions of [`SIGNALS`].
static SLOTS: [Slot; 2] = [Slot::new(), Slot::new()];

/// The program's action of a signal.
struct Slot {
    action: Record,
    /// Whether a handler that bypassed [`change`] has replaced `previous`, and may call this handler for it.
    is_bypassed: AtomicBool,
    previous: Record,
}

impl Slot {
    const fn new() -> Self {
        Self { action: Record::new(), is_bypassed: AtomicBool::new(false), previous: Record::new() }
    }

    fn of(signal: c_int) -> &'static Self {
        &SLOTS[usize::from(signal == SIGBUS)]
    }

    /// Takes the handler for a signal that another handler passes on: the one before it.
    fn take_behind(&self) -> usize {
        let is_bypassed = self.is_bypassed.load(Ordering::Acquire);
        if is_bypassed { &self.previous } else { &self.action }.take()
    }
}

/// A [`SignalAction`], word by word. Only the holder of the [`Lock`] writes, except that the signal handler removes
/// a handler that is to be called once.
struct Record {
    /// With [`RESETHAND_BIT`].
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

impl Record {
    const fn new() -> Self {
        Self {
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicU64::new(0),
            restorer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn load(&self) -> SignalAction {
        SignalAction {
            handler: self.handler.load(Ordering::Relaxed) & !RESETHAND_BIT,
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    fn store(&self, action: &SignalAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        let is_once = action.has_handler() && action.flags & SA_RESETHAND != 0;
        self.handler
            .store(action.handler | if is_once { RESETHAND_BIT } else { 0 }, Ordering::Release);
    }

    /// Returns the handler for a signal that is delivered. One with `SA_RESETHAND` is returned once, and `SIG_DFL` then.
    fn take(&self) -> usize {
        let next = |handler| (handler & RESETHAND_BIT != 0).then_some(SIG_DFL);
        let taken = self.handler.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        taken.unwrap_or_else(|handler| handler) & !RESETHAND_BIT
    }
}

/// Right to change actions: a lock that a thread may take again while it has it.
struct Lock {
    is_nested: bool,
    /// Dropped after the lock is free.
    _mask: SavedMask,
}

/// Thread that has the [`Lock`]; 0 without one.
static LOCKED_BY: AtomicI32 = AtomicI32::new(0);

impl Lock {
    fn take() -> Self {
        let mask = SavedMask::block_all();
        let thread = thread();
        loop {
            match LOCKED_BY.compare_exchange_weak(0, thread, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Self { is_nested: false, _mask: mask },
                Err(owner) if owner == thread => return Self { is_nested: true, _mask: mask },
                // It is held during a few system calls.
                Err(_) => sched_yield(),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.is_nested {
            LOCKED_BY.store(0, Ordering::Release);
        }
    }
}

/// Makes the child of a fork the owner of what it has inherited.
extern "C" fn in_child() {
    LOCKED_BY.store(0, Ordering::Relaxed);
    PROCESS.store(process::id(), Ordering::Relaxed);
}

/// Puts the handler in front of the program's, unless it is, or cannot be used here.
pub(super) fn install() {
    let state = STATE.load(Ordering::Acquire);
    if state == State::Unusable as u8 || state == State::Installed as u8 && are_in_place() {
        return;
    }
    // A debugger would stop at each fault of a trial, and changes none.
    let needs_trial = state == State::New as u8 && !probe::is_traced();
    let _lock = Lock::take();
    if STATE.load(Ordering::Relaxed) == State::New as u8 {
        let is_hooked = at_fork(None, None, Some(in_child));
        PROCESS.store(process::id(), Ordering::Relaxed);
        let is_usable = is_hooked
            && !probe::is_on_valgrind()
            && adopt_all()
            && (!needs_trial || is_recognized());
        let state = if is_usable { State::Installed } else { State::Unusable };
        if !is_usable {
            give_back();
        }
        STATE.store(state as u8, Ordering::Release);
    } else if is_installed() {
        adopt_all();
    }
}

/// Whether this process, and no parent of it that shares the memory, has installed the handler.
fn is_installed() -> bool {
    STATE.load(Ordering::Acquire) == State::Installed as u8
        && PROCESS.load(Ordering::Relaxed) == process::id()
}

/// Whether faults of copies are recognized. The caller has the [`Lock`].
fn is_recognized() -> bool {
    let _deliverable = SavedMask::unblock(set_of(SIGNALS));
    probe::succeeds()
}

/// Gives the program its actions back. The caller has the [`Lock`].
fn give_back() {
    for signal in SIGNALS {
        if SignalAction::read(signal).is_some_and(|action| is_ours(&action)) {
            // SAFETY: an action that the program has set.
            unsafe { Slot::of(signal).action.load().set(signal) };
        }
    }
}

/// Runs `set`, by which the program may change the action of a signal and read the one from before. Puts the handler
/// in front again.
///
/// Returns the program's action before, and the handler that `set` may have read in its place; `None` if it has not read
/// it, because the handler was not in front.
pub fn change(signal: c_int, set: &mut dyn FnMut()) -> Option<(SignalAction, usize)> {
    let lock = Lock::take();
    if lock.is_nested || !SIGNALS.contains(&signal) {
        set();
        return None;
    }
    let was_ours = SignalAction::read(signal).is_some_and(|action| is_ours(&action));
    let action = &Slot::of(signal).action;
    let before = action.load();
    set();
    if is_installed()
        && let Some(found) = SignalAction::read(signal).filter(|found| !is_ours(found))
    {
        action.store(&found);
        put_in_front(signal);
    }
    was_ours.then(|| (before, own()))
}

/// [`adopt`] for both signals. Returns whether the handler is in front of both.
fn adopt_all() -> bool {
    let adopted = SIGNALS.map(adopt);
    adopted == [true; 2]
}

/// Takes the action of a signal as the program's, and puts the handler in front, if it is not. The caller has the [`Lock`].
fn adopt(signal: c_int) -> bool {
    let Some(found) = SignalAction::read(signal) else { return false };
    let slot = Slot::of(signal);
    if !is_ours(&found) {
        // The first that is found has no other behind it.
        let may_pass_on = found.has_handler() && STATE.load(Ordering::Relaxed) != State::New as u8;
        if may_pass_on && slot.is_bypassed.load(Ordering::Relaxed) {
            return false;
        }
        slot.previous.store(&slot.action.load());
        slot.is_bypassed.store(may_pass_on, Ordering::Release);
        slot.action.store(&found);
    } else if is_in_place(&found) {
        return true;
    } else if slot.is_bypassed.swap(false, Ordering::AcqRel) {
        // The code that had replaced the handler has put it back.
        slot.action.store(&slot.previous.load());
    }
    put_in_front(signal)
}

/// Sets the handler, with the flags and the mask of the program's action.
fn put_in_front(signal: c_int) -> bool {
    let action = Slot::of(signal).action.load();
    let (flags, mask) = match action.handler {
        SIG_DFL => (SA_ONSTACK, 0),
        SIG_IGN => (SA_ONSTACK | SA_RESTART, 0),
        _ => (action.flags & !SA_RESETHAND, action.mask),
    };
    let flags = flags | SA_SIGINFO | SA_RESTORER;
    let front = SignalAction { handler: own(), flags, restorer: restorer(), mask };
    // SAFETY: `on_fault` is a handler for both signals.
    unsafe { front.set(signal) }
}

fn own() -> usize {
    let own: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
    own as usize
}

fn is_ours(action: &SignalAction) -> bool {
    action.handler == own()
}

/// Whether this module has set the action, and no code that has read it from the kernel.
fn is_in_place(action: &SignalAction) -> bool {
    is_ours(action) && action.restorer == restorer()
}

fn are_in_place() -> bool {
    SIGNALS.iter().all(|signal| SignalAction::read(*signal).is_some_and(|of| is_in_place(&of)))
}

fn are_ours() -> bool {
    SIGNALS.iter().all(|signal| SignalAction::read(*signal).is_some_and(|action| is_ours(&action)))
}

/// Whether this thread takes both signals.
fn is_deliverable() -> bool {
    let blocked = BlockedSignals::read();
    !SIGNALS.iter().any(|signal| blocked.contains(*signal))
}

/// Whether the handler is in front of the program's now, for both signals, and this thread takes them.
pub(super) fn is_in_front() -> bool {
    STATE.load(Ordering::Acquire) == State::Installed as u8 && are_ours() && is_deliverable()
}

/// Whether a copy of this thread may meet a page that is not there.
///
/// The answer holds for [`COPIES_PER_CHECK`] copies. A program that takes the place of the handler and unmaps memory in use
/// before the next check gets the signal.
pub(super) fn is_ready() -> bool {
    thread_local! {
        static CHECKED: Cell<(bool, u32)> = const { Cell::new((false, 0)) };
    }
    CHECKED.with(|checked| {
        let (mut ready, left) = checked.get();
        let left = left.checked_sub(1).unwrap_or_else(|| {
            ready = is_in_front();
            COPIES_PER_CHECK
        });
        checked.set((ready, left));
        ready
    })
}

/// Handler in the kernel: calls [`route`], and jumps to the handler of the program that it returns, with registers and stack
/// as the kernel has set them up.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
#[unsafe(naked)]
unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, frame: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        // Where the handler returns to.
        "lea rcx, [rsp + 24]",
        "call {route}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "mov r11, rax",
        // As from the kernel.
        "xor eax, eax",
        "jmp r11",
        "2:",
        "ret",
        ".cfi_endproc",
        route = sym route,
    )
}

/// Returns the address of the code to which the handler returns.
///
/// The C library has such code too. This one is in use for no other handler, and so tells a call of the kernel.
#[unsafe(naked)]
extern "C" fn restorer() -> usize {
    naked_asm!(
        "lea rax, [rip + 3f]",
        "ret",
        // Outside of this function, for unwinders must find no table for it: they recognize the instructions. They look
        // for the table of the byte before.
        ".pushsection .text.softroce_restorer,\"ax\",@progbits",
        "nop",
        "3:",
        "mov rax, 15",
        "syscall",
        // The second, at `OF_BYPASSING`.
        "nop",
        "mov rax, 15",
        "syscall",
        ".popsection",
    )
}

/// Distance to the code to which a handler returns that bypassed [`change`]. It may jump to this handler at its end, and
/// leave the return address of the kernel.
const OF_BYPASSING: usize = 10;

/// Decides about a signal: returns the handler of the program that is to be entered, or 0. `returns_to` is the place of
/// the return address, by which a call of the kernel differs from one by another handler.
extern "C" fn route(
    signal: c_int,
    info: *mut siginfo_t,
    frame: *mut c_void,
    returns_to: *mut usize,
) -> usize {
    // SAFETY: the kernel has made both for this handler, which alone has them now.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let frame = unsafe { &mut *frame.cast::<ucontext_t>() };
    let is_sent = info.si_code <= 0 || signal == SIGBUS && info.si_code == BUS_MCEERR_AO;
    if !is_sent {
        let is_copy = copies::end(frame);
        if probe::is_tried(is_copy) || is_copy {
            return 0;
        }
    }
    let slot = Slot::of(signal);
    // SAFETY: the return address of this handler is on the stack.
    let is_passed_on = unsafe { *returns_to } != restorer();
    let handler = if is_passed_on { slot.take_behind() } else { slot.action.take() };
    if handler == SIG_IGN && is_sent {
        return 0;
    }
    if ![SIG_DFL, SIG_IGN].contains(&handler) {
        if !is_passed_on && slot.is_bypassed.load(Ordering::Acquire) {
            // SAFETY: as above; the code there does the same.
            unsafe { *returns_to = restorer() + OF_BYPASSING };
        }
        return handler;
    }
    let default = SignalAction { handler: SIG_DFL, ..SignalAction::default() };
    // SAFETY: the default action.
    unsafe { default.set(signal) };
    if is_sent {
        send_to_self(signal, info);
    }
    0
}

/// Checks in a test that copies of this thread survive missing pages.
#[cfg(test)]
pub(super) fn assert_ready() {
    install();
    assert_eq!(STATE.load(Ordering::Relaxed), State::Installed as u8);
    assert!(are_ours() && is_deliverable());
}

#[cfg(test)]
mod tests {
    use std::arch::asm;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::thread;

    use super::super::memory::TestPages;
    use super::*;

    /// What a child of a test exits with.
    const CALLED: c_int = 7;

    /// Runs `child` in a child of this process, which has one thread, and returns how it ended. It may make calls that
    /// are async-signal-safe.
    fn in_child(child: impl FnOnce()) -> c_int {
        assert_ready();
        let _alone = crate::sys::PROCESS_START.write().unwrap();
        // SAFETY: the child makes calls that are async-signal-safe, and ends.
        let process = unsafe { libc::fork() };
        assert!(process >= 0);
        if process == 0 {
            child();
            // SAFETY: it ends the child, which shares nothing with the test.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is the test's, and so is the child.
        assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
        status
    }

    fn assert_ended_by(status: c_int, signal: c_int) {
        assert!(libc::WIFSIGNALED(status), "{status:#x}");
        assert_eq!(libc::WTERMSIG(status), signal);
    }

    fn assert_called(status: c_int) {
        assert!(libc::WIFEXITED(status), "{status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), CALLED);
    }

    fn forbidden_page() -> TestPages {
        let pages = TestPages::new(4096);
        pages.forbid(0);
        pages
    }

    /// Faults at an instruction that is not of the library's copies.
    fn fault_at(page: *mut u8) {
        // SAFETY: it writes a byte of a page of the test, or faults.
        unsafe { asm!("mov byte ptr [{page}], 1", page = in(reg) page) };
    }

    /// An action of the program, set without [`change`].
    fn set(signal: c_int, handler: usize, flags: u64) {
        let flags = flags | SA_RESTORER;
        let own = SignalAction { handler, flags, restorer: restorer() + 1, mask: 0 };
        // SAFETY: the tests have handlers of the right type, which do not return.
        assert!(unsafe { own.set(signal) });
    }

    extern "C" fn exit(_: c_int) {
        // SAFETY: it ends the child of a test.
        unsafe { libc::_exit(CALLED) };
    }

    extern "C" fn exit_at_own_action(signal: c_int) {
        let ours = SignalAction::read(signal).is_some_and(|action| is_ours(&action));
        // SAFETY: it ends the child of a test.
        unsafe { libc::_exit(if ours { CALLED } else { 1 }) };
    }

    fn address(handler: extern "C" fn(c_int)) -> usize {
        handler as usize
    }

    #[test]
    fn foreign_copy_with_the_old_marker_dies() {
        /// Identified our copies, in `r8`, before their addresses did.
        const OLD_MARKER: u64 = 0x9d0b_61f3_57c2_e84a;
        let page = forbidden_page();
        let byte = 0_u8;
        let status = in_child(|| {
            // A sanitizer has a handler of its own.
            change(SIGSEGV, &mut || set(SIGSEGV, SIG_DFL, 0));
            // SAFETY: the copy faults, which ends the child.
            unsafe {
                asm!(
                    "rep movsb",
                    in("r8") OLD_MARKER,
                    inout("rdi") page.as_ptr() => _,
                    inout("rsi") &byte => _,
                    inout("rcx") 1_usize => _,
                );
            }
        });
        assert_ended_by(status, SIGSEGV);
    }

    #[test]
    fn handler_of_the_program_gets_its_own_fault_and_not_the_librarys() {
        let page = forbidden_page();
        let status = in_child(|| {
            set(SIGSEGV, address(exit_at_own_action), 0);
            install();
            // SAFETY: the page is the test's.
            let copied = unsafe { copies::copy(page.as_ptr(), [1_u8].as_ptr(), 1) };
            if copied == 0 {
                fault_at(page.as_ptr());
            }
        });
        assert_called(status);
    }

    #[test]
    fn changed_action_is_behind_the_handler_and_is_read_back() {
        let page = forbidden_page();
        let status = in_child(|| {
            let first = change(SIGSEGV, &mut || set(SIGSEGV, address(exit), SA_RESTART));
            let second = change(SIGSEGV, &mut || {});
            let is_read = second.is_some_and(|(action, front)| {
                front == own()
                    && action.handler == address(exit)
                    && action.flags == SA_RESTART | SA_RESTORER
            });
            if first.is_some() && is_read && are_ours() {
                fault_at(page.as_ptr());
            }
        });
        assert_called(status);
    }

    #[test]
    fn handler_that_is_reset_is_called_once() {
        let page = forbidden_page();
        let handler = |flags| {
            in_child(|| {
                change(SIGSEGV, &mut || set(SIGSEGV, address(exit), flags));
                Slot::of(SIGSEGV).action.take();
                fault_at(page.as_ptr());
            })
        };
        assert_called(handler(0));
        assert_ended_by(handler(SA_RESETHAND), SIGSEGV);
    }

    #[test]
    fn ignored_signal_has_no_effect_and_an_ignored_fault_ends_the_process() {
        let page = forbidden_page();
        let ignore = || change(SIGSEGV, &mut || set(SIGSEGV, SIG_IGN, 0));
        let sent = in_child(|| {
            ignore();
            // SAFETY: it has no pointers.
            unsafe { libc::raise(SIGSEGV) };
            exit(0);
        });
        assert_called(sent);
        let faulted = in_child(|| {
            ignore();
            fault_at(page.as_ptr());
        });
        assert_ended_by(faulted, SIGSEGV);
    }

    #[test]
    fn sent_signal_ends_the_process_by_default() {
        for signal in SIGNALS {
            let status = in_child(|| {
                change(signal, &mut || set(signal, SIG_DFL, 0));
                // SAFETY: it has no pointers.
                unsafe { libc::raise(signal) };
            });
            assert_ended_by(status, signal);
        }
    }

    /// Passes the signal on to the handler that was there before.
    unsafe extern "C" fn pass_on(signal: c_int, info: *mut siginfo_t, frame: *mut c_void) {
        // SAFETY: the arguments are those of this handler.
        unsafe { on_fault(signal, info, frame) };
    }

    #[test]
    fn bypassing_handler_passes_on_to_the_one_before_it() {
        let page = forbidden_page();
        let passing: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = pass_on;
        for is_adopted in [false, true] {
            let status = in_child(|| {
                change(SIGSEGV, &mut || set(SIGSEGV, address(exit), 0));
                set(SIGSEGV, passing as usize, SA_SIGINFO);
                if is_adopted {
                    install();
                }
                if is_adopted == are_ours() {
                    fault_at(page.as_ptr());
                }
            });
            assert_called(status);
        }
    }

    #[test]
    fn second_bypassing_handler_stays_in_front() {
        let status = in_child(|| {
            for expected in [true, false] {
                set(SIGBUS, address(exit), 0);
                install();
                if are_ours() != expected {
                    return_code(1);
                }
            }
            // The first has put back what it had replaced.
            set(SIGBUS, own(), SA_SIGINFO);
            install();
            let action = Slot::of(SIGBUS).action.load();
            return_code(if are_ours() && action.handler != address(exit) { CALLED } else { 2 });
        });
        assert_called(status);
    }

    fn return_code(code: c_int) {
        // SAFETY: it ends the child of a test.
        unsafe { libc::_exit(code) };
    }

    #[test]
    fn thread_that_blocks_a_signal_does_not_copy_so() {
        assert_ready();
        let blocked = || {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: it fills the set.
            unsafe { libc::sigfillset(set.as_mut_ptr()) };
            // SAFETY: the set is filled; it is the mask of this thread alone.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) };
            is_ready()
        };
        thread::scope(|scope| {
            let (blocked, free) = (scope.spawn(blocked), scope.spawn(is_ready));
            assert_eq!((blocked.join().unwrap(), free.join().unwrap()), (false, true));
        });
    }
}
