/* Copies within the process as a program makes them: valgrind takes memory that process_vm_writev writes for uninitialized. */

#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

ssize_t process_vm_writev(pid_t process, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
    if (process != getpid() || local_count != 1 || remote_count != 1 || local->iov_len != remote->iov_len)
        return syscall(SYS_process_vm_writev, process, local, local_count, remote, remote_count, flags);
    memcpy(remote->iov_base, local->iov_base, local->iov_len);
    return (ssize_t)local->iov_len;
}
