// LD_PRELOAD: counts the system calls on the files of one folder, and at a chosen one kills the process or fails.
//
// gate() arms it, so that whatever ran before does not count. Reads and writes through mmap are no system calls and
// are not seen; SQLite maps only the index of its log (-shm), which is made anew from the log when nobody has it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS 65536
#define REAL(name) ((typeof(&name))real(#name))

enum { COUNT, KILL, TEAR, ONCE, FOREVER };

static char folder[4096], acknowledgements[4096];
static size_t length;
static long count, chosen;
static int action, failure, log_to = -1;
static char paths[DESCRIPTORS][64]; // below the folder, "/" for itself; empty: none of ours
static char acknowledges[DESCRIPTORS];

static void *real(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

long gate_count(void) {
    return count;
}

/* Arms the gate: `path` is the folder, `acks` a file whose writes are logged too (""), `log` where to ("": nowhere). */
void gate(const char *path, const char *acks, const char *log, long at, int what, int error) {
    length = strlen(path);
    strcpy(folder, path);
    strcpy(acknowledgements, acks);
    log_to = *log ? REAL(open64)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    count = 0, chosen = at, action = what, failure = error;
}

/* The part of a path below the folder, "/" for the folder itself, NULL for everything else. */
static const char *below(const char *path) {
    if (!length || !path || strncmp(path, folder, length) || (path[length] && path[length] != '/'))
        return NULL;
    return path[length] ? path + length + 1 : "/";
}

static const char *of(int fd) {
    return fd >= 0 && fd < DESCRIPTORS && *paths[fd] ? paths[fd] : NULL;
}

static void note(const char *what, const char *path, long first, long second, const void *data, size_t size) {
    char line[256];
    if (log_to < 0)
        return;
    int used = snprintf(line, sizeof line, "%s %s %ld %ld %ld %zu\n", what, path, first, second, count, size);
    REAL(write)(log_to, line, used);
    REAL(write)(log_to, data, size);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    pause();
}

/* Counts a call; whether it has to fail. Where it is the one to be torn, the caller asks torn(). */
static int fails(void) {
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (number == chosen && action == KILL)
        die();
    if ((action == ONCE && number == chosen) || (action == FOREVER && number >= chosen)) {
        errno = failure;
        return 1;
    }
    return 0;
}

static int torn(void) {
    return action == TEAR && count == chosen;
}

/* ---- waiting: SQLite sleeps for up to ten seconds between its tries, and here nobody else holds anything */

int usleep(useconds_t micros) {
    return REAL(usleep)(length ? micros / 50 : micros);
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    struct timespec brief = {0, (wanted->tv_sec * 1000000000L + wanted->tv_nsec) / 50};
    return REAL(nanosleep)(length && wanted->tv_sec < 40 ? &brief : wanted, left);
}

/* ---- descriptors */

static int opened(int fd, const char *path, int created) {
    const char *name = below(path);
    if (fd >= 0 && fd < DESCRIPTORS) {
        acknowledges[fd] = *acknowledgements && path && !strcmp(path, acknowledgements);
        snprintf(paths[fd], sizeof paths[fd], "%s", name ? name : "");
    }
    if (name && fd >= 0)
        note(created ? "create" : "open", name, 0, 0, NULL, 0);
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (!below(path))
        return opened(REAL(open64)(path, flags, mode), path, 0);
    if (fails())
        return -1;
    int absent = REAL(access)(path, F_OK) != 0;
    int fd = opened(REAL(open64)(path, flags, mode), path, absent);
    if (fd >= 0 && flags & O_TRUNC)
        note("truncate", below(path), 0, 0, NULL, 0);
    if (torn())
        die();
    return fd;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open64(path, flags, mode);
}

int close(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS)
        *paths[fd] = acknowledges[fd] = 0;
    return REAL(close)(fd);
}

/* ---- reading */

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    return of(fd) && fails() ? -1 : REAL(pread64)(fd, data, size, at);
}

ssize_t read(int fd, void *data, size_t size) {
    return of(fd) && fails() ? -1 : REAL(read)(fd, data, size);
}

int access(const char *path, int mode) {
    return below(path) && fails() ? -1 : REAL(access)(path, mode);
}

int stat64(const char *path, struct stat64 *facts) {
    return below(path) && fails() ? -1 : REAL(stat64)(path, facts);
}

int lstat64(const char *path, struct stat64 *facts) {
    return below(path) && fails() ? -1 : REAL(lstat64)(path, facts);
}

void *mmap64(void *wish, size_t size, int protection, int flags, int fd, off64_t at) {
    return of(fd) && fails() ? MAP_FAILED : REAL(mmap64)(wish, size, protection, flags, fd, at);
}

int fcntl64(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK;
    if (locks && of(fd) && fails()) {
        // Of a lock, these two mean that somebody else has it, which is no fault.
        errno = errno == EACCES || errno == EAGAIN ? ENOLCK : errno;
        return -1;
    }
    return REAL(fcntl64)(fd, command, argument);
}

/* ---- writing */

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    if (of(fd) && fails())
        return -1;
    if (of(fd) && torn()) {
        REAL(pwrite64)(fd, data, size / 2, at);
        die();
    }
    ssize_t done = REAL(pwrite64)(fd, data, size, at);
    if (of(fd) && done > 0)
        note("write", of(fd), at, 0, data, done);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (of(fd) && fails())
        return -1;
    off64_t at = of(fd) ? lseek64(fd, 0, SEEK_CUR) : 0;
    ssize_t done = REAL(write)(fd, data, of(fd) && torn() ? size / 2 : size);
    if (of(fd) && torn())
        die();
    if (of(fd) && done > 0)
        note("write", of(fd), at, 0, data, done);
    if (fd >= 0 && fd < DESCRIPTORS && acknowledges[fd] && done > 0)
        note("acknowledge", "-", 0, 0, data, done);
    return done;
}

/* A call that changes something and returns 0: counted, done, logged. */
#define CHANGES(path, call, what, number)                                                                              \
    if (!(path))                                                                                                       \
        return call;                                                                                                   \
    if (fails())                                                                                                       \
        return -1;                                                                                                     \
    int result = call;                                                                                                 \
    if (result == 0)                                                                                                   \
        note(what, path, number, 0, NULL, 0);                                                                          \
    if (torn())                                                                                                        \
        die();                                                                                                         \
    return result

int fsync(int fd) {
    CHANGES(of(fd), REAL(fsync)(fd), "sync", 0);
}

int fdatasync(int fd) {
    CHANGES(of(fd), REAL(fdatasync)(fd), "sync", 0);
}

int ftruncate64(int fd, off64_t size) {
    CHANGES(of(fd), REAL(ftruncate64)(fd, size), "truncate", (long)size);
}

int unlink(const char *path) {
    CHANGES(below(path), REAL(unlink)(path), "unlink", 0);
}

int mkdir(const char *path, mode_t mode) {
    CHANGES(below(path), REAL(mkdir)(path, mode), "mkdir", 0);
}
