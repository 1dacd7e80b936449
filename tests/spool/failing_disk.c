/* Fails calls on files below FAULT_ROOT while the file FAULT_SWITCH has a number.

   That number is the errno: of what writes for EIO and ENOSPC, of what changes folders
   and opens for writing for EROFS, as a disk that was mounted again read-only. Loaded
   before all other libraries: calls of Python and of Arrow are caught alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int wanted(void) {
    const char *path = getenv("FAULT_SWITCH");
    int file = path ? REAL(open)(path, O_RDONLY) : -1;
    if (file < 0)
        return 0;
    char text[16] = {0};
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? atoi(text) : 0;
}

static int below(const char *path) {
    const char *root = getenv("FAULT_ROOT");
    return root && strncmp(path, root, strlen(root)) == 0;
}

static int held(int file, char *path) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* Whether a path, which may be relative to a folder that is open, is below the root. */
static int placed(int folder, const char *path) {
    char held_path[PATH_MAX];
    if (path[0] == '/')
        return below(path);
    return folder != AT_FDCWD && held(folder, held_path) && below(held_path);
}

static int fails(int hit, int writes) {
    int code = hit ? wanted() : 0;
    if (code == 0 || (code == EROFS) == (writes != 0))
        return 0;
    errno = code;
    return 1;
}

static int written(int file) {
    char path[PATH_MAX];
    return fails(held(file, path) && below(path), 1);
}

static int changed(int folder, const char *path) {
    return fails(placed(folder, path), 0);
}

ssize_t write(int f, const void *d, size_t n) {
    return written(f) ? -1 : REAL(write)(f, d, n);
}
ssize_t writev(int f, const struct iovec *d, int n) {
    return written(f) ? -1 : REAL(writev)(f, d, n);
}
ssize_t pwrite64(int f, const void *d, size_t n, off64_t at) {
    return written(f) ? -1 : REAL(pwrite64)(f, d, n, at);
}
ssize_t pwrite(int f, const void *d, size_t n, off_t at) {
    return written(f) ? -1 : REAL(pwrite)(f, d, n, at);
}
int fsync(int f) { return written(f) ? -1 : REAL(fsync)(f); }
int fdatasync(int f) { return written(f) ? -1 : REAL(fdatasync)(f); }
int mkdir(const char *p, mode_t m) {
    return changed(AT_FDCWD, p) ? -1 : REAL(mkdir)(p, m);
}
int link(const char *a, const char *b) {
    return changed(AT_FDCWD, b) ? -1 : REAL(link)(a, b);
}
int linkat(int d, const char *a, int e, const char *b, int flags) {
    return changed(e, b) ? -1 : REAL(linkat)(d, a, e, b, flags);
}
int rename(const char *a, const char *b) {
    return changed(AT_FDCWD, b) ? -1 : REAL(rename)(a, b);
}
int renameat(int d, const char *a, int e, const char *b) {
    return changed(e, b) ? -1 : REAL(renameat)(d, a, e, b);
}
int unlink(const char *p) { return changed(AT_FDCWD, p) ? -1 : REAL(unlink)(p); }
int unlinkat(int d, const char *p, int flags) {
    return changed(d, p) ? -1 : REAL(unlinkat)(d, p, flags);
}

#define OPENING(flags) (((flags)&O_ACCMODE) != O_RDONLY || ((flags)&O_CREAT))
#define MODE(flags, last)                                                              \
    mode_t mode = 0;                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                             \
        va_list more;                                                                  \
        va_start(more, last);                                                          \
        mode = va_arg(more, mode_t);                                                   \
        va_end(more);                                                                  \
    }

#define OPEN(name)                                                                     \
    int name(const char *p, int flags, ...) {                                          \
        MODE(flags, flags)                                                             \
        int failed = OPENING(flags) && changed(AT_FDCWD, p);                           \
        return failed ? -1 : REAL(name)(p, flags, mode);                               \
    }
#define OPENAT(name)                                                                   \
    int name(int d, const char *p, int flags, ...) {                                   \
        MODE(flags, flags)                                                             \
        int failed = OPENING(flags) && changed(d, p);                                  \
        return failed ? -1 : REAL(name)(d, p, flags, mode);                            \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
