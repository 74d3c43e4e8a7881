/* Simulates a disk that loses power, fills up or fails, and a wrong clock. This library is preloaded into the server
   under test. Its environment variables:

   VECHE_DISK     the folder that is on the simulated disk
   VECHE_PLATTER  the folder with the data that would be left after a power cut (the "platter")
   VECHE_AHEAD    the number of seconds by which the clock is ahead, or behind if negative

   As in POSIX, fsync of a file makes its content durable, and fsync of a folder makes its names durable. Each fsync of
   a file on the disk therefore copies the content to `platter/INODE`, and each fsync of a folder lists its names in
   `platter/INODE`. Tests cause faults by creating files in the platter folder, and end them by deleting these files:

   full         files on the disk do not grow (ENOSPC); they can be written in place
   write-fails  nothing can be written (EIO)
   fsync-fails  fsync fails (EIO)

   If the platter folder contains a file `boot`, the server reads it instead of the kernel's boot id. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(result, name, ...) \
  static result (*real)(__VA_ARGS__); \
  if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value ? value : "/nowhere";
}

static int has_fault(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", setting("VECHE_PLATTER"), name);
  return access(path, F_OK) == 0;
}

static int is_on_disk(int fd, struct stat *found) {
  char link[64], path[4096];
  const char *disk = setting("VECHE_DISK");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, disk, strlen(disk)) == 0 && fstat(fd, found) == 0;
}

/* Calls the real `write` instead of the replacement below. */
static ssize_t put(int fd, const void *bytes, size_t count) {
  REAL(ssize_t, "write", int, const void *, size_t);
  return real(fd, bytes, count);
}

static void list_names(int fd, FILE *out) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  DIR *folder = opendir(path);
  struct dirent *entry;
  while (folder && (entry = readdir(folder)))
    if (entry->d_type == DT_REG) fprintf(out, "%llu %s\n", (unsigned long long)entry->d_ino, entry->d_name);
  if (folder) closedir(folder);
}

static void copy_content(int fd, int to) {
  char bytes[1 << 16], path[64];
  off_t at = 0;
  ssize_t count = pread(fd, bytes, sizeof bytes, 0);
  int own = -1;
  if (count < 0) {
    /* The descriptor is write-only, so the file is opened again. Readable files are not opened again, because closing
       the second descriptor would drop SQLite's locks. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    own = open(path, O_RDONLY | O_CLOEXEC);
    count = pread(own, bytes, sizeof bytes, 0);
  }
  while (count > 0 && put(to, bytes, count) == count) {
    at += count;
    count = pread(own < 0 ? fd : own, bytes, sizeof bytes, at);
  }
  if (own >= 0) close(own);
}

static void keep(int fd, const struct stat *found) {
  char path[4096], new[4200];
  snprintf(path, sizeof path, "%s/%llu", setting("VECHE_PLATTER"), (unsigned long long)found->st_ino);
  snprintf(new, sizeof new, "%s.new", path);
  pthread_mutex_lock(&lock);
  FILE *out = fopen(new, "w");
  if (out) {
    if (S_ISDIR(found->st_mode)) list_names(fd, out);
    else copy_content(fd, fileno(out));
    fclose(out);
    rename(new, path);
  }
  pthread_mutex_unlock(&lock);
}

static int synced(int fd, int (*sync)(int)) {
  int saved = errno;
  struct stat found;
  int is_ours = is_on_disk(fd, &found);
  errno = saved;
  if (is_ours && has_fault("fsync-fails")) {
    errno = EIO;
    return -1;
  }
  int result = sync(fd);
  if (is_ours && result == 0) keep(fd, &found);
  return result;
}

int fsync(int fd) {
  REAL(int, "fsync", int);
  return synced(fd, real);
}

int fdatasync(int fd) {
  REAL(int, "fdatasync", int);
  return synced(fd, real);
}

/* Returns whether a write of `count` bytes must fail, and sets errno. A negative `at` means the current offset. */
static int fails(int fd, off_t at, size_t count) {
  struct stat found;
  int saved = errno, is_broken = has_fault("write-fails");
  if ((is_broken || has_fault("full")) && is_on_disk(fd, &found) && S_ISREG(found.st_mode)) {
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    off_t from = at >= 0 ? at : lseek(fd, 0, SEEK_CUR);
    errno = is_broken ? EIO : ENOSPC;
    if (is_broken || appends || from + (off_t)count > found.st_size) return 1;
  }
  errno = saved;
  return 0;
}

ssize_t write(int fd, const void *bytes, size_t count) {
  if (fails(fd, -1, count)) return -1;
  return put(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
  if (fails(fd, at, count)) return -1;
  return real(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return pwrite64(fd, bytes, count, at);
}

static const char *instead(const char *path, char *other, size_t size) {
  if (strcmp(path, "/proc/sys/kernel/random/boot_id") != 0 || !has_fault("boot")) return path;
  snprintf(other, size, "%s/boot", setting("VECHE_PLATTER"));
  return other;
}

int open64(const char *path, int flags, ...) {
  REAL(int, "open64", const char *, int, ...);
  char other[4096];
  va_list rest;
  va_start(rest, flags);
  /* Only O_CREAT has a mode argument, since the server does not use O_TMPFILE. */
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return real(instead(path, other, sizeof other), flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(int, "clock_gettime", clockid_t, struct timespec *);
  const char *ahead = getenv("VECHE_AHEAD");
  int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME && ahead) now->tv_sec += atoll(ahead);
  return result;
}
