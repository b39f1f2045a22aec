/* A file system that answers otherwise, seen by one process: LD_PRELOAD, with FAULT naming what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int is(const char *word) { const char *fault = getenv("FAULT"); return fault && strstr(fault, word) != NULL; }
static int fail(int number) { errno = number; return -1; }
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

int flock(int file, int what) { REAL(int, flock, int, int); return is("no_locks") ? fail(ENOLCK) : real(file, what); }
int fchmod(int file, mode_t mode) { REAL(int, fchmod, int, mode_t); return is("no_modes") ? fail(EPERM) : real(file, mode); }
int chmod(const char *path, mode_t mode) { REAL(int, chmod, const char *, mode_t); return is("no_modes") ? fail(EPERM) : real(path, mode); }
int fsync(int file) { REAL(int, fsync, int); return is("no_flush") ? fail(EINVAL) : real(file); }

void *mmap64(void *at, size_t size, int rights, int flags, int file, off_t from) {
  REAL(void *, mmap64, void *, size_t, int, int, int, off_t);
  if (!is("no_sharing") || file < 0 || !(flags & MAP_SHARED)) return real(at, size, rights, flags, file, from);
  errno = ENODEV;
  return MAP_FAILED;
}
void *mmap(void *at, size_t size, int rights, int flags, int file, off_t from) { return mmap64(at, size, rights, flags, file, from); }

int rename(const char *from, const char *to) { /* NFS: the first answer is lost, the request is sent again */
  REAL(int, rename, const char *, const char *);
  return real(from, to) == 0 && is("sent_twice") ? fail(ENOENT) : 0;
}

/* fs.protected_regular: in a folder with the sticky bit nobody opens what is another's as if to make it; here no file at all */
static int protected(const char *path, int flags) { struct stat at; return is("protected") && flags & O_CREAT && !stat(path, &at) && S_ISREG(at.st_mode); }
#define OPEN(name) int name(const char *path, int flags, ...) { REAL(int, name, const char *, int, ...); \
  va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); return protected(path, flags) ? fail(EACCES) : real(path, flags, mode); }
OPEN(open)
OPEN(open64)

static int is_log(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strstr(path, "/job.out") != NULL;
}

ssize_t read(int file, void *into, size_t size) {
  REAL(ssize_t, read, int, void *, size_t);
  if (is("lost") && is_log(file)) return fail(ESTALE);
  return real(file, into, is("short") && is_log(file) && size > 7 ? 7 : size);
}
