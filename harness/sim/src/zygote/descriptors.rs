//! Hands a run's files from the parent to its zygote, over their socket.

use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Number of files.
pub(super) const COUNT: usize = 6;

/// The files, as the zygote has them.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) trace: OwnedFd,
    pub(super) beginning: File,
    pub(super) request: File,
    pub(super) report: File,
    pub(super) stdout: File,
    pub(super) stderr: File,
}

/// Room for one control message with all descriptors, aligned as the kernel wants it.
#[repr(C, align(16))]
struct Control([u8; 64]);
const _: () = assert!(PAYLOAD + 32 <= 64, "descriptors and their header fit");

const PAYLOAD: usize = COUNT * size_of::<RawFd>();

/// Sends the descriptors; they stay open here.
pub(super) fn send(socket: &UnixStream, files: [BorrowedFd<'_>; COUNT]) -> io::Result<()> {
    let raw = files.map(|file| file.as_raw_fd());
    let (mut control, mut byte) = (Control([0; 64]), [1u8]);
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all-zero bytes are a valid `msghdr`. The control message is built inside `control`, which has room for it,
    // with the macros made for that; all pointers outlive the call.
    let sent = unsafe {
        let mut message = zeroed::<libc::msghdr>();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(PAYLOAD as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(PAYLOAD as u32) as _;
        std::ptr::copy_nonoverlapping(raw.as_ptr().cast(), libc::CMSG_DATA(header), PAYLOAD);
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives what [`send`] sent.
pub(super) fn receive(socket: &UnixStream) -> io::Result<Received> {
    let (mut control, mut byte) = (Control([0; 64]), [0u8]);
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut raw = [-1 as RawFd; COUNT];
    // SAFETY: as in `send`. The kernel wrote the control message, and its length is checked before it is read.
    unsafe {
        let mut message = zeroed::<libc::msghdr>();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
        loop {
            match libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) {
                1 => break,
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        if header.is_null() || (*header).cmsg_len as usize != libc::CMSG_LEN(PAYLOAD as u32) as usize {
            return Err(io::Error::other("the first message carries the run's files"));
        }
        std::ptr::copy_nonoverlapping(libc::CMSG_DATA(header), raw.as_mut_ptr().cast(), PAYLOAD);
    }
    // SAFETY: the kernel made these descriptors for us.
    let [trace, beginning, request, report, stdout, stderr] = raw.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let [beginning, request, report, stdout, stderr] = [beginning, request, report, stdout, stderr].map(File::from);
    Ok(Received { trace, beginning, request, report, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memfd;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_arrive_in_the_order_in_which_they_were_sent() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let files: [OwnedFd; COUNT] = std::array::from_fn(|_| memfd(c"test").unwrap());
        for (n, file) in files.iter().enumerate() {
            File::from(file.try_clone().unwrap()).write_all_at(&[n as u8], 0).unwrap();
        }
        send(&ours, files.each_ref().map(|file| file.as_fd())).unwrap();
        let got = receive(&theirs).unwrap();
        let got = [got.trace.into(), got.beginning, got.request, got.report, got.stdout, got.stderr];
        for (n, file) in got.iter().enumerate() {
            let mut byte = [0xff];
            file.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [n as u8]);
        }
    }

    #[test]
    fn a_parent_that_is_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        assert!(receive(&theirs).is_err());
    }
}
