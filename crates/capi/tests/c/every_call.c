/* Makes every call of the library: with success, and with bad arguments. The argument is a directory
 * of the host for images and copies. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <dirent.h>
#include <unistd.h>

#include "check.h"

static struct vfscale_fs *fs;
static struct vfscale_task *task;

static int has(const char *word) { return strstr(vfscale_error(), word) != NULL; }

static void make_tree(void) {
    struct vfscale_memory_options options;
    struct vfscale_usage usage;
    memset(&options, 0, sizeof options);
    options.size = 64 << 20;
    options.mode = 0755;
    options.limits.open_files = 10000;
    CHECK(strcmp(vfscale_version(), "0.1.0") == 0);
    CHECK(strcmp(vfscale_error(), "") == 0);
    IS(-EFAULT, vfscale_fs_memory(&options, sizeof options, NULL));
    IS(-EINVAL, vfscale_fs_memory(&options, 0, &fs));
    options.flags = 1;
    IS(-EINVAL, vfscale_fs_memory(&options, sizeof options, &fs));
    options.flags = 0;
    OK(vfscale_fs_memory(&options, sizeof options, &fs));
    IS(0, vfscale_fs_is_new(fs));
    OK(vfscale_fs_sync(fs));
    OK(vfscale_fs_prove(fs));
    OK(vfscale_task_new(fs, NULL, 0, &task));
    OK(vfscale_fs_usage(fs, &usage));
    IS(1, usage.tasks);
    IS(-EBUSY, vfscale_fs_close(fs));
    CHECK(has("1 tasks"));
}

static void handles(void) {
    struct vfscale_task *other = NULL, *child = NULL;
    struct vfscale_fs *temporary = NULL;
    OK(vfscale_task_fork(task, &child));
    OK(vfscale_task_free(child));
    IS(-EBADF, vfscale_task_free(child));
    CHECK(has("was freed"));
    IS(-EBADF, vfscale_mkdir(child, "/d", 0755));
    IS(-EBADF, vfscale_mkdir(NULL, "/d", 0755));
    CHECK(has("is null"));
    IS(-EBADF, vfscale_mkdir((struct vfscale_task *)fs, "/d", 0755));
    CHECK(has("is really a struct vfscale_fs"));
    IS(-EBADF, vfscale_mkdir((struct vfscale_task *)&other, "/d", 0755));
    CHECK(has("not a handle"));
    OK(vfscale_task_new(fs, NULL, 0, &other));
    CHECK(other != child);
    OK(vfscale_task_free(other));
    OK(vfscale_fs_memory(NULL, 0, &temporary));
    OK(vfscale_fs_abandon(temporary));
    IS(-EBADF, vfscale_fs_close(temporary));
    IS(-EBADF, vfscale_fs_prove(temporary));
}

static void descriptors(void) {
    struct vfscale_open_how how;
    struct vfscale_open_file files[8] = {0};
    struct vfscale_stat st;
    char path[64];
    int fd, again, fds[8], n;
    fd = vfscale_open(task, "/f", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    IS(0, fd);
    IS(FD_CLOEXEC, vfscale_fcntl(task, fd, F_GETFD, 0));
    OK(vfscale_fcntl(task, fd, F_SETFD, 0));
    IS(0, vfscale_fcntl(task, fd, F_GETFD, 0));
    OK(vfscale_fcntl(task, fd, F_SETFL, O_APPEND));
    CHECK(vfscale_fcntl(task, fd, F_GETFL, 0) & O_APPEND);
    IS(-EINVAL, vfscale_fcntl(task, fd, 9999, 0));
    IS(1, vfscale_openat(task, AT_FDCWD, "/f", O_RDONLY, 0));
    IS(-ENOENT, vfscale_openat(task, AT_FDCWD, "/none", O_RDONLY, 0));
    CHECK(has("/none"));
    IS(-EFAULT, vfscale_open(task, NULL, O_RDONLY, 0));
    IS(2, vfscale_creat(task, "/g", 0600));
    memset(&how, 0, sizeof how);
    how.flags = O_RDONLY;
    how.resolve = 0x08; /* RESOLVE_BENEATH */
    IS(-EXDEV, vfscale_openat2(task, AT_FDCWD, "/f", &how, sizeof how, NULL));
    IS(3, vfscale_openat2(task, AT_FDCWD, "f", &how, sizeof how, NULL));
    IS(-EFAULT, vfscale_openat2(task, AT_FDCWD, "f", NULL, sizeof how, NULL));
    again = vfscale_reopen(task, 3, O_RDWR);
    IS(4, again);
    IS(5, vfscale_dup(task, fd));
    IS(6, vfscale_dup2(task, fd, 6));
    IS(7, vfscale_dup3(task, fd, 7, O_CLOEXEC));
    IS(10, vfscale_fcntl(task, fd, F_DUPFD, 10));
    IS(11, vfscale_fcntl(task, fd, F_DUPFD_CLOEXEC, 10));
    IS(10, vfscale_descriptors(task, fds, 8));
    IS(7, fds[7]);
    OK(vfscale_task_exec(task));
    IS(8, vfscale_descriptors(task, NULL, 0));
    IS(2, vfscale_fd_path(task, fd, path, sizeof path));
    CHECK(strcmp(path, "/f") == 0);
    OK(vfscale_close(task, fd));
    IS(-EBADF, vfscale_close(task, fd));
    CHECK(vfscale_open_files(task, "/", files, 8) >= 4);
    OK(vfscale_stat(task, "/f", &st));
    for (n = 0; n < 8 && files[n].ino != st.st_ino; n++) {}
    CHECK(n < 8 && files[n].dev == st.st_dev && files[n].id != 0);
    OK(vfscale_close_all(task));
    IS(0, vfscale_open_files(task, "/", files, 8));
    again = vfscale_open(task, "/f", O_WRONLY | O_APPEND, 0);
    IS(1, vfscale_open_files(task, "/", files, 8));
    IS(O_WRONLY | O_APPEND, files[0].flags & (O_ACCMODE | O_APPEND));
    IS(1, vfscale_open_files(task, "/", NULL, 0));
    IS(-EFAULT, vfscale_open_files(task, "/", NULL, 1));
    IS(-ENOENT, vfscale_open_files(task, "/none", files, 8));
    OK(vfscale_close(task, again));
    IS(0, vfscale_descriptors(task, NULL, 0));
    OK(vfscale_set_descriptors_max(task, 100));
    IS(100, vfscale_get_descriptors_max(task));
}

static void input_and_output(void) {
    char a[4], b[8];
    struct iovec out[2] = {{a, sizeof a}, {b, sizeof b}};
    int64_t from = 0, to = 20;
    int fd = vfscale_open(task, "/io", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0);
    IS(5, vfscale_write(task, fd, "hello", 5));
    IS(0, vfscale_lseek(task, fd, 0, SEEK_SET));
    IS(5, vfscale_read(task, fd, b, sizeof b));
    CHECK(memcmp(b, "hello", 5) == 0);
    IS(0, vfscale_read(task, fd, b, sizeof b));
    IS(-EFAULT, vfscale_read(task, fd, NULL, 1));
    IS(0, vfscale_read(task, fd, NULL, 0));
    IS(3, vfscale_pwrite(task, fd, "HEL", 3, 0));
    IS(2, vfscale_pread(task, fd, b, 2, 2));
    CHECK(memcmp(b, "Ll", 2) == 0);
    IS(-EINVAL, vfscale_pread(task, fd, b, 2, -1));
    memcpy(a, "1234", 4);
    memcpy(b, "abcdefgh", 8);
    IS(12, vfscale_pwritev(task, fd, out, 2, 0));
    IS(12, vfscale_preadv(task, fd, out, 2, 0));
    IS(0, vfscale_lseek(task, fd, 0, SEEK_SET));
    IS(12, vfscale_writev(task, fd, out, 2));
    IS(0, vfscale_lseek(task, fd, -12, SEEK_CUR));
    IS(12, vfscale_readv(task, fd, out, 2));
    CHECK(memcmp(b, "abcdefgh", 8) == 0);
    IS(-EINVAL, vfscale_readv(task, fd, out, -1));
    IS(-EINVAL, vfscale_lseek(task, fd, 0, 99));
    IS(0, vfscale_lseek(task, fd, 0, SEEK_DATA));
    IS(-ENXIO, vfscale_lseek(task, fd, -1, SEEK_DATA));
    IS(4, vfscale_copy_file_range(task, fd, &from, fd, &to, 4, 0));
    IS(4, from);
    IS(24, to);
    IS(-EINVAL, vfscale_copy_file_range(task, fd, &from, fd, &to, 4, 1));
    OK(vfscale_ftruncate(task, fd, 100));
    OK(vfscale_truncate(task, "/io", 8192));
    IS(-EINVAL, vfscale_truncate(task, "/io", -1));
    OK(vfscale_fallocate(task, fd, 0, 0, 16384));
    IS(16384, vfscale_lseek(task, fd, 0, SEEK_END));
    OK(vfscale_fsync(task, fd));
    OK(vfscale_fdatasync(task, fd));
    OK(vfscale_syncfs(task, fd));
    OK(vfscale_sync(task));
    OK(vfscale_close(task, fd));
    IS(-EBADF, vfscale_write(task, fd, "x", 1));
}

static void attributes(void) {
    struct vfscale_stat st;
    struct vfscale_statfs space;
    struct timespec times[2] = {{1000, 5}, {0, UTIME_OMIT}};
    uint32_t flags = 99;
    int fd = vfscale_open(task, "/attr", O_CREAT | O_RDWR, 0644), path_fd;
    OK(vfscale_symlink(task, "attr", "/link"));
    OK(vfscale_stat(task, "/link", &st));
    CHECK(S_ISREG(st.st_mode) && st.st_nlink == 1);
    OK(vfscale_lstat(task, "/link", &st));
    CHECK(S_ISLNK(st.st_mode));
    OK(vfscale_fstat(task, fd, &st));
    OK(vfscale_fstatat(task, AT_FDCWD, "link", &st, AT_SYMLINK_NOFOLLOW));
    CHECK(S_ISLNK(st.st_mode));
    OK(vfscale_statx(task, fd, "", AT_EMPTY_PATH, STATX_SIZE, &st));
    IS(-EFAULT, vfscale_stat(task, "/attr", NULL));
    OK(vfscale_statfs(task, "/", &space));
    CHECK(space.f_bsize * space.f_blocks == 64 << 20 && space.f_namelen == 255);
    OK(vfscale_fstatfs(task, fd, &space));
    OK(vfscale_access(task, "/attr", R_OK | W_OK));
    IS(-EINVAL, vfscale_access(task, "/attr", 64));
    OK(vfscale_faccessat(task, AT_FDCWD, "attr", F_OK, AT_EACCESS));
    OK(vfscale_chmod(task, "/attr", 0600));
    OK(vfscale_fchmodat(task, AT_FDCWD, "attr", 0640, 0));
    OK(vfscale_fchmod(task, fd, 04711));
    OK(vfscale_chown(task, "/attr", 7, 8));
    OK(vfscale_lchown(task, "/link", 9, (gid_t)-1));
    OK(vfscale_fchown(task, fd, (uid_t)-1, 11));
    OK(vfscale_fchownat(task, AT_FDCWD, "attr", 12, (gid_t)-1, 0));
    OK(vfscale_utimensat(task, AT_FDCWD, "attr", times, 0));
    OK(vfscale_stat(task, "/attr", &st));
    CHECK(st.st_uid == 12 && st.st_gid == 11 && (st.st_mode & 0777) == 0711);
    CHECK(st.st_atim.tv_sec == 1000 && st.st_atim.tv_nsec == 5);
    OK(vfscale_futimens(task, fd, NULL));
    times[0].tv_nsec = 1000000000;
    IS(-EINVAL, vfscale_futimens(task, fd, times));
    OK(vfscale_getflags(task, fd, &flags));
    IS(0, flags);
    OK(vfscale_setflags(task, fd, FS_IMMUTABLE_FL));
    IS(-EPERM, vfscale_unlink(task, "/attr"));
    OK(vfscale_setflags(task, fd, 0));
    path_fd = vfscale_open(task, "/attr", O_PATH, 0);
    CHECK(path_fd >= 0);
    IS(-EBADF, vfscale_fchmod(task, path_fd, 0600));
    OK(vfscale_close_all(task));
}

static void names(void) {
    struct vfscale_file_handle handle;
    struct vfscale_stat st;
    char buf[16];
    int dir, fd;
    OK(vfscale_mkdir(task, "/names", 0755));
    IS(-EEXIST, vfscale_mkdir(task, "/names", 0755));
    dir = vfscale_open(task, "/names", O_DIRECTORY, 0);
    OK(vfscale_mkdirat(task, dir, "sub", 0755));
    OK(vfscale_mknodat(task, dir, "node", S_IFREG | 0644, 0));
    OK(vfscale_mkfifo(task, "/names/fifo", 0644));
    OK(vfscale_symlinkat(task, "target", dir, "link"));
    IS(6, vfscale_readlink(task, "/names/link", buf, sizeof buf));
    CHECK(memcmp(buf, "target", 6) == 0);
    IS(3, vfscale_readlinkat(task, dir, "link", buf, 3));
    IS(-EINVAL, vfscale_readlinkat(task, dir, "link", buf, 0));
    OK(vfscale_link(task, "/names/node", "/names/node2"));
    OK(vfscale_linkat(task, dir, "node", dir, "node3", 0));
    OK(vfscale_stat(task, "/names/node", &st));
    IS(3, st.st_nlink);
    OK(vfscale_rename(task, "/names/node2", "/names/node4"));
    IS(-EEXIST, vfscale_renameat2(task, dir, "node", dir, "node4", RENAME_NOREPLACE));
    OK(vfscale_name_to_handle_at(task, dir, "node4", &handle, 0));
    fd = vfscale_open_by_handle_at(task, dir, &handle, O_RDONLY);
    CHECK(fd >= 0);
    IS(-EFAULT, vfscale_open_by_handle_at(task, dir, NULL, O_RDONLY));
    OK(vfscale_unlink(task, "/names/node"));
    OK(vfscale_unlinkat(task, dir, "node3", 0));
    OK(vfscale_rmdir(task, "/names/sub"));
    IS(-ENOTEMPTY, vfscale_unlinkat(task, AT_FDCWD, "/names", AT_REMOVEDIR));
    OK(vfscale_close_all(task));
}

/* A stream whose next entry is the second, by records. */
static void records(struct vfscale_dir *dir) {
    _Alignas(8) char buf[1000];
    const struct dirent64 *record;
    ssize_t size, at;
    int seen = 1;
    IS(-EINVAL, vfscale_getdents64(dir, buf, 23));
    IS(-EFAULT, vfscale_getdents64(dir, NULL, 100));
    while ((size = vfscale_getdents64(dir, buf, sizeof buf)) > 0) {
        for (at = 0; at < size; at += record->d_reclen, seen++) {
            record = (const void *)(buf + at);
            CHECK(record->d_type == (record->d_name[0] == '.' ? DT_DIR : DT_REG));
            CHECK(record->d_ino != 0);
            CHECK(strcmp(record->d_name, "..") == 0 || seen > 1);
        }
        IS(size, at);
        IS(((const struct dirent64 *)(const void *)(buf + at - record->d_reclen))->d_off,
           vfscale_telldir(dir));
    }
    IS(0, size);
    IS(152, seen);
    OK(vfscale_rewinddir(dir));
}

static void directories(void) {
    struct vfscale_dir *dir, *other;
    struct vfscale_dirent entry;
    char name[32];
    int64_t middle = 0;
    int fd, n, seen = 0;
    OK(vfscale_mkdir(task, "/many", 0755));
    for (n = 0; n < 150; n++) {
        snprintf(name, sizeof name, "/many/%d", n);
        OK(vfscale_mknodat(task, AT_FDCWD, name, S_IFREG | 0644, 0));
    }
    IS(-ENOENT, vfscale_opendir(task, "/none", &dir));
    OK(vfscale_opendir(task, "/many", &dir));
    while (vfscale_readdir(dir, &entry) == 1) {
        CHECK(strlen(entry.d_name) == entry.d_namlen);
        CHECK(entry.d_type == (entry.d_name[0] == '.' ? DT_DIR : DT_REG));
        if (++seen == 75) {
            middle = vfscale_telldir(dir);
            CHECK((uint64_t)middle == entry.d_off);
        }
    }
    IS(152, seen);
    OK(vfscale_seekdir(dir, middle));
    for (seen = 75; vfscale_readdir(dir, &entry) == 1; seen++) {}
    IS(152, seen);
    IS(-EINVAL, vfscale_seekdir(dir, -1));
    OK(vfscale_rewinddir(dir));
    IS(1, vfscale_readdir(dir, &entry));
    CHECK(strcmp(entry.d_name, ".") == 0);
    IS(-EFAULT, vfscale_readdir(dir, NULL));
    records(dir);
    fd = vfscale_open(task, "/many", O_DIRECTORY, 0);
    OK(vfscale_fdopendir(task, fd, &other));
    OK(vfscale_close(task, fd));
    IS(1, vfscale_readdir(other, &entry));
    OK(vfscale_closedir(other));
    OK(vfscale_closedir(dir));
    IS(-EBADF, vfscale_readdir(dir, &entry));
    IS(-EBADF, vfscale_closedir(dir));
    OK(vfscale_remove_all(task, "/many"));
}

static void extended_attributes(void) {
    char buf[64];
    int fd = vfscale_open(task, "/x", O_CREAT | O_RDWR, 0644);
    OK(vfscale_symlink(task, "x", "/xl"));
    OK(vfscale_setxattr(task, "/xl", "user.a", "1", 1, XATTR_CREATE));
    IS(-EEXIST, vfscale_setxattr(task, "/x", "user.a", "1", 1, XATTR_CREATE));
    IS(-EINVAL, vfscale_setxattr(task, "/x", "user.a", "1", 1, 77));
    OK(vfscale_lsetxattr(task, "/xl", "trusted.l", "link", 4, 0));
    OK(vfscale_fsetxattr(task, fd, "user.b", "22", 2, 0));
    IS(-E2BIG, vfscale_fsetxattr(task, fd, "user.b", buf, 1 << 20, 0));
    OK(vfscale_setxattrat(task, fd, "", AT_EMPTY_PATH, "user.c", "333", 3, 0));
    IS(1, vfscale_getxattr(task, "/x", "user.a", buf, sizeof buf));
    IS(4, vfscale_lgetxattr(task, "/xl", "trusted.l", buf, sizeof buf));
    CHECK(memcmp(buf, "link", 4) == 0);
    IS(2, vfscale_fgetxattr(task, fd, "user.b", NULL, 0));
    IS(-ERANGE, vfscale_getxattrat(task, AT_FDCWD, "x", 0, "user.c", buf, 2));
    IS(-ENODATA, vfscale_getxattr(task, "/x", "user.none", buf, sizeof buf));
    IS(21, vfscale_listxattr(task, "/x", NULL, 0));
    IS(10, vfscale_llistxattr(task, "/xl", buf, sizeof buf));
    IS(21, vfscale_flistxattr(task, fd, buf, sizeof buf));
    IS(-ERANGE, vfscale_listxattrat(task, AT_FDCWD, "x", 0, buf, 4));
    OK(vfscale_removexattr(task, "/x", "user.a"));
    OK(vfscale_lremovexattr(task, "/xl", "trusted.l"));
    OK(vfscale_fremovexattr(task, fd, "user.b"));
    OK(vfscale_removexattrat(task, AT_FDCWD, "x", 0, "user.c"));
    IS(0, vfscale_listxattr(task, "/x", buf, sizeof buf));
    OK(vfscale_close(task, fd));
}

static struct vfscale_token *token;
static int pipe_fds[2], lock_fd;

static void *wait_for_lock(void *arg) {
    (void)arg;
    IS(-EINTR, vfscale_flock(task, lock_fd, LOCK_EX, token));
    IS(-EINTR, vfscale_read_wait(task, pipe_fds[0], &pipe_fds, 1, token));
    return NULL;
}

static void locks_and_pipes(void) {
    struct vfscale_flock lock = {F_WRLCK, SEEK_SET, 10, 5, 0, 0}, held;
    struct vfscale_task *other;
    struct vfscale_usage usage;
    pthread_t thread;
    char byte;
    int pair[2], one, memory;
    one = vfscale_open(task, "/lock", O_CREAT | O_RDWR, 0644);
    lock_fd = vfscale_open(task, "/lock", O_RDWR, 0);
    OK(vfscale_flock(task, one, LOCK_EX, NULL));
    IS(-EWOULDBLOCK, vfscale_flock(task, lock_fd, LOCK_SH | LOCK_NB, NULL));
    IS(-EINVAL, vfscale_flock(task, lock_fd, 0, NULL));
    OK(vfscale_task_fork(task, &other));
    OK(vfscale_fcntl_lock(task, one, F_SETLK, &lock, NULL));
    held = lock;
    held.l_start = held.l_len = 0;
    IS(-EAGAIN, vfscale_fcntl_lock(other, one, F_SETLK, &held, NULL));
    OK(vfscale_fcntl_lock(other, one, F_GETLK, &held, NULL));
    CHECK(held.l_start == 10 && held.l_len == 5 && held.l_pid == vfscale_task_id(task));
    held = lock;
    held.l_start = 100;
    OK(vfscale_fcntl_lock(task, one, F_OFD_SETLKW, &held, NULL));
    OK(vfscale_fcntl_lock(task, lock_fd, F_OFD_GETLK, &held, NULL));
    IS(-1, held.l_pid);
    IS(-EFAULT, vfscale_fcntl_lock(task, one, F_SETLK, NULL, NULL));
    lock.l_type = F_UNLCK;
    OK(vfscale_fcntl_lock(task, one, F_SETLK, &lock, NULL));
    OK(vfscale_task_free(other));
    OK(vfscale_pipe2(task, pipe_fds, O_CLOEXEC));
    IS(-EFAULT, vfscale_pipe2(task, NULL, 0));
    CHECK(vfscale_fcntl(task, pipe_fds[0], F_GETPIPE_SZ, 0) >= 4096);
    IS(8192, vfscale_fcntl(task, pipe_fds[0], F_SETPIPE_SZ, 8192));
    IS(1, vfscale_write_wait(task, pipe_fds[1], "x", 1, NULL));
    IS(1, vfscale_read(task, pipe_fds[0], &byte, 1));
    OK(vfscale_token_new(&token));
    CHECK(pthread_create(&thread, NULL, wait_for_lock, NULL) == 0);
    usleep(50000);
    OK(vfscale_token_cancel(token));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(vfscale_token_free(token));
    IS(-EBADF, vfscale_token_cancel(token));
    OK(vfscale_socketpair(task, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    IS(1, vfscale_write(task, pair[0], "y", 1));
    IS(1, vfscale_read(task, pair[1], &byte, 1));
    CHECK(byte == 'y');
    IS(1, vfscale_write(task, pair[0], "z", 1));
    OK(vfscale_fs_usage(fs, &usage));
    CHECK(usage.pipe_pages == 2 && usage.socket_bytes > 0 && usage.locks == 2);
    OK(vfscale_fcntl(task, pair[1], F_SETFL, O_NONBLOCK));
    OK(vfscale_shutdown(task, pair[0], SHUT_WR));
    IS(1, vfscale_read(task, pair[1], &byte, 1));
    IS(0, vfscale_read(task, pair[1], &byte, 1));
    IS(1, vfscale_write(task, pair[1], "y", 1));
    OK(vfscale_shutdown(task, pair[0], SHUT_RDWR));
    IS(-EPIPE, vfscale_write(task, pair[1], "y", 1));
    IS(-EINVAL, vfscale_shutdown(task, pair[0], 3));
    IS(-ENOTSOCK, vfscale_shutdown(task, one, SHUT_RD));
    IS(-EBADF, vfscale_shutdown(task, 99, SHUT_RD));
    IS(-EAFNOSUPPORT, vfscale_socketpair(task, AF_INET, SOCK_STREAM, 0, pair));
    memory = vfscale_memfd_create(task, "name", MFD_ALLOW_SEALING);
    CHECK(memory >= 0);
    OK(vfscale_fcntl(task, memory, F_ADD_SEALS, F_SEAL_WRITE));
    IS(F_SEAL_WRITE, vfscale_fcntl(task, memory, F_GET_SEALS, 0));
    IS(-EPERM, vfscale_write(task, memory, "x", 1));
    OK(vfscale_close_all(task));
}

static void tasks(void) {
    uint32_t groups[2] = {30, 40}, seen[4];
    struct vfscale_credentials user = {10, 20, 10, 20, 0, groups, 2}, is;
    struct vfscale_task *guest, *copy;
    char path[16];
    OK(vfscale_mkdir_all(task, "/jail/etc", 0755));
    IS(-ENOENT, vfscale_task_in(fs, "/none", NULL, 0, &guest));
    OK(vfscale_task_in(fs, "/jail", &user, sizeof user, &guest));
    OK(vfscale_get_credentials(guest, &is, seen, 4));
    CHECK(is.uid == 10 && is.gid == 20 && is.group_count == 2 && seen[1] == 40);
    IS(-EACCES, vfscale_mkdir(guest, "/new", 0755));
    IS(-EPERM, vfscale_chroot(guest, "/etc"));
    IS(-EPERM, vfscale_task_unshare(guest, &copy));
    OK(vfscale_set_credentials(guest, NULL, 0));
    IS(022, vfscale_umask(guest, 077));
    OK(vfscale_chroot(guest, "/etc"));
    OK(vfscale_chdir(guest, "/"));
    IS(1, vfscale_getcwd(guest, path, sizeof path));
    IS(-ERANGE, vfscale_getcwd(guest, path, 1));
    OK(vfscale_task_unshare(guest, &copy));
    OK(vfscale_task_free(copy));
    OK(vfscale_task_free(guest));
    IS(0, vfscale_open(task, "/jail", O_DIRECTORY, 0));
    OK(vfscale_fchdir(task, 0));
    IS(5, vfscale_getcwd(task, NULL, 0));
    OK(vfscale_chdir(task, "/"));
    OK(vfscale_close(task, 0));
}

static void mounts(void) {
    struct vfscale_memory_options options;
    char text[8192];
    ssize_t length;
    memset(&options, 0, sizeof options);
    options.size = 1 << 20;
    OK(vfscale_mkdir_all(task, "/mnt/a", 0755));
    OK(vfscale_mkdir_all(task, "/mnt/b", 0755));
    OK(vfscale_mount_memory(task, "/mnt/a", MS_NOSUID, &options, sizeof options));
    IS(-EINVAL, vfscale_mount_memory(task, "/mnt/a", 1ul << 40, NULL, 0));
    OK(vfscale_write_file(task, "/mnt/a/f", "x", 1));
    OK(vfscale_bind(task, "/mnt/a", "/mnt/b", 0));
    OK(vfscale_access(task, "/mnt/b/f", F_OK));
    OK(vfscale_set_propagation(task, "/mnt/a", MS_PRIVATE | MS_REC));
    IS(-EINVAL, vfscale_set_propagation(task, "/mnt/a", 0));
    OK(vfscale_remount(task, "/mnt/b", MS_RDONLY, 1));
    IS(-EROFS, vfscale_write_file(task, "/mnt/b/f", "y", 1));
    OK(vfscale_remount(task, "/mnt/a", 0, 0));
    length = vfscale_mountinfo(task, NULL, 0);
    CHECK(length > 0);
    IS(length, vfscale_mountinfo(task, text, sizeof text));
    text[length] = 0;
    CHECK(strstr(text, " /mnt/a ") != NULL);
    OK(vfscale_umount2(task, "/mnt/b", MNT_DETACH));
    OK(vfscale_move_mount(task, "/mnt/a", "/mnt/b"));
    OK(vfscale_umount2(task, "/mnt/b", 0));
    IS(-EINVAL, vfscale_umount2(task, "/mnt/b", 0));
    OK(vfscale_mount_proc(task, "/mnt/b", 0));
    CHECK(vfscale_read_file(task, "/mnt/b/mounts", text, sizeof text) > 0);
    OK(vfscale_umount2(task, "/mnt/b", 0));
    IS(-EOPNOTSUPP, vfscale_grow_fs(task, AT_FDCWD, "/", 1 << 30));
    IS(-EOPNOTSUPP, vfscale_trim_fs(task, AT_FDCWD, "/", NULL));
    IS(-EFAULT, vfscale_trim_fs(task, AT_FDCWD, NULL, NULL));
    IS(0, vfscale_drop_cached(task, AT_FDCWD, "/"));
}

static void whole_files(void) {
    char buf[32];
    OK(vfscale_mkdir_all(task, "/w/x/y", 0755));
    OK(vfscale_mkdir_all(task, "/w/x/y", 0755));
    OK(vfscale_write_file(task, "/w/f", "old", 3));
    OK(vfscale_replace_file(task, "/w/f", "newer", 5, 1));
    IS(5, vfscale_read_file(task, "/w/f", NULL, 0));
    IS(5, vfscale_read_file(task, "/w/f", buf, sizeof buf));
    CHECK(memcmp(buf, "newer", 5) == 0);
    IS(-ERANGE, vfscale_read_file(task, "/w/f", buf, 4));
    IS(5, vfscale_copy_file(task, "/w/f", "/w/g"));
    IS(5, vfscale_copy_all(task, "/w", "/v"));
    OK(vfscale_symlink(task, "/v", "/sv"));
    IS(4, vfscale_realpath(task, "/sv/f", buf, sizeof buf));
    CHECK(strcmp(buf, "/v/f") == 0);
    OK(vfscale_remove_all(task, "/v"));
}

static void watching(void) {
    struct vfscale_watcher *watcher;
    static struct vfscale_event event;
    int64_t watch;
    OK(vfscale_mkdir_all(task, "/watched/deep", 0755));
    OK(vfscale_watcher_new(0, &watcher));
    watch = vfscale_watch(watcher, task, "/watched", 1);
    IS(1, watch);
    IS(-ENOENT, vfscale_watch(watcher, task, "/none", 0));
    IS(-EAGAIN, vfscale_next_event(watcher, 0, NULL, &event));
    IS(-ETIMEDOUT, vfscale_next_event(watcher, 1, NULL, &event));
    OK(vfscale_mkdir(task, "/watched/deep/d", 0755));
    OK(vfscale_rename(task, "/watched/deep/d", "/watched/e"));
    OK(vfscale_next_event(watcher, -1, NULL, &event));
    CHECK(event.change == VFSCALE_EVENT_CREATED && event.file_type == DT_DIR);
    CHECK(strcmp(event.path, "deep/d") == 0 && event.path_len == 6);
    OK(vfscale_next_event(watcher, 1000, NULL, &event));
    CHECK(event.change == VFSCALE_EVENT_RENAMED && (int64_t)event.watch == watch);
    CHECK(strcmp(event.path, "e") == 0 && strcmp(event.other, "deep/d") == 0);
    OK(vfscale_unwatch(watcher, watch));
    IS(-EINVAL, vfscale_unwatch(watcher, watch));
    OK(vfscale_watcher_free(watcher));
    IS(-EBADF, vfscale_next_event(watcher, 0, NULL, &event));
}

/* Trims a volume of 64 MiB that is nearly empty. */
static void trims(struct vfscale_task *own) {
    struct vfscale_credentials user = {10, 20, 10, 20, 0, NULL, 0};
    struct vfscale_fstrim_range range = {64 << 20, UINT64_MAX, 0};
    struct vfscale_task *other;
    int64_t trimmed = vfscale_trim_fs(own, AT_FDCWD, "/", NULL);
    IS(-EINVAL, vfscale_trim_fs(own, AT_FDCWD, "/", &range));
    range.start = 0;
    range.len = 4095;
    IS(-EINVAL, vfscale_trim_fs(own, AT_FDCWD, "/", &range));
    IS(-EFAULT, vfscale_trim_fs(own, AT_FDCWD, "/", (void *)((char *)&range + 1)));
    range.len = UINT64_MAX;
    range.minlen = 1ull << 40;
    if (trimmed != -EOPNOTSUPP) {
        CHECK(trimmed > 32 << 20 && trimmed < 64 << 20);
        IS(0, vfscale_trim_fs(own, AT_FDCWD, "/", &range));
    }
    OK(vfscale_task_fork(own, &other));
    OK(vfscale_set_credentials(other, &user, sizeof user));
    IS(-EPERM, vfscale_trim_fs(other, AT_FDCWD, "/", NULL));
    OK(vfscale_task_free(other));
}

/* Returns how many bytes of the host a file takes. */
static int64_t allocated(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return (int64_t)st.st_blocks * 512;
}

/* Opens a volume, writes a file of 16 MiB and removes it, and closes the volume. Returns how many
 * bytes the image has given back since the removal. */
static int64_t write_and_remove(const char *path, uint32_t flags) {
    static char data[1 << 20];
    struct vfscale_volume_options options;
    struct vfscale_task *own;
    struct vfscale_fs *disk;
    int64_t before;
    int n, fd;
    memset(&options, 0, sizeof options);
    options.create_size = 64 << 20;
    options.flags = flags;
    OK(vfscale_fs_volume(path, &options, sizeof options, &disk));
    OK(vfscale_task_new(disk, NULL, 0, &own));
    fd = vfscale_open(own, "/f", O_CREAT | O_WRONLY, 0644);
    memset(data, 7, sizeof data);
    for (n = 0; n < 16; n++)
        IS(sizeof data, vfscale_write(own, fd, data, sizeof data));
    OK(vfscale_fs_sync(disk));
    before = allocated(path);
    CHECK(before >= 16 << 20);
    OK(vfscale_close(own, fd));
    OK(vfscale_unlink(own, "/f"));
    OK(vfscale_task_free(own));
    OK(vfscale_fs_close(disk));
    return before - allocated(path);
}

/* The image of a volume gives back what a removed file had, or does not, as its options say. */
static void discards(const char *folder) {
    char path[512];
    int fd;
    snprintf(path, sizeof path, "%s/holes.vfs", folder);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    if (fallocate(fd, 0, 0, 1 << 20) != 0 ||
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) != 0) {
        printf("######## SKIPPED: discards of an image: files have no holes here\n");
        close(fd);
        return;
    }
    OK(close(fd));
    OK(unlink(path));
    CHECK(write_and_remove(path, VFSCALE_VOLUME_NO_DISCARD) < 1 << 20);
    CHECK(write_and_remove(path, 0) > 12 << 20);
    fd = open(path, O_RDWR);
    OK(fallocate(fd, 0, 0, 64 << 20));
    OK(close(fd));
    CHECK(write_and_remove(path, 0) < 1 << 20);
    CHECK(write_and_remove(path, VFSCALE_VOLUME_DISCARD) > 12 << 20);
}

static void budgets(const char *folder) {
    struct vfscale_volume_options options;
    struct vfscale_cache_budget *budget;
    struct vfscale_cache_usage usage;
    struct vfscale_fs *disks[2];
    struct vfscale_task *own;
    static char data[64 << 10];
    char path[512];
    int n;
    IS(-EINVAL, vfscale_cache_budget_new(0, &budget));
    IS(-EFAULT, vfscale_cache_budget_new(1, NULL));
    OK(vfscale_cache_budget_new(8 << 20, &budget));
    OK(vfscale_cache_budget_usage(budget, &usage));
    CHECK(usage.bytes == 8 << 20 && usage.data == 0 && usage.metadata == 0);
    IS(-EFAULT, vfscale_cache_budget_usage(budget, NULL));
    IS(-EBADF, vfscale_cache_budget_free((struct vfscale_cache_budget *)task));
    CHECK(has("is really a struct vfscale_task"));
    memset(&options, 0, sizeof options);
    options.create_size = 32 << 20;
    options.cache_budget = budget;
    for (n = 0; n < 2; n++) {
        snprintf(path, sizeof path, "%s/shared%d.vfs", folder, n);
        OK(vfscale_fs_volume(path, &options, sizeof options, &disks[n]));
        OK(vfscale_task_new(disks[n], NULL, 0, &own));
        OK(vfscale_write_file(own, "/f", data, sizeof data));
        OK(vfscale_task_free(own));
        OK(vfscale_cache_budget_usage(budget, &usage));
        CHECK(usage.data >= (n + 1) * sizeof data && usage.data <= usage.bytes);
        CHECK(usage.metadata > 0);
    }
    OK(vfscale_cache_budget_free(budget));
    IS(-EBADF, vfscale_cache_budget_usage(budget, &usage));
    IS(-EBADF, vfscale_fs_volume(path, &options, sizeof options, &disks[0]));
    CHECK(has("was freed"));
    options.cache_budget = NULL;
    options.reserved = 1;
    IS(-EINVAL, vfscale_fs_volume(path, &options, sizeof options, &disks[0]));
    for (n = 0; n < 2; n++) {
        OK(vfscale_task_new(disks[n], NULL, 0, &own));
        IS(sizeof data, vfscale_read_file(own, "/f", data, sizeof data));
        OK(vfscale_task_free(own));
        OK(vfscale_fs_close(disks[n]));
    }
}

static void host(const char *folder) {
    struct vfscale_transfer_options options = {VFSCALE_TRANSFER_FIXED_OWNER, 5, 6, 0};
    struct vfscale_volume_options volume;
    struct vfscale_transferred done;
    struct vfscale_task *own;
    struct vfscale_fs *disk;
    struct vfscale_stat st;
    struct stat host_st;
    char path[512];
    snprintf(path, sizeof path, "%s/copy", folder);
    OK(vfscale_export(task, "/w", path, NULL, 0, &done));
    CHECK(done.files == 5 && done.bytes == 10);
    OK(vfscale_import(task, path, "/back", &options, sizeof options, NULL));
    OK(vfscale_stat(task, "/back/f", &st));
    CHECK(st.st_uid == 5 && st.st_gid == 6);
    options.flags = 1 << 20;
    IS(-EINVAL, vfscale_import(task, path, "/back2", &options, sizeof options, NULL));

    OK(vfscale_mkdir(task, "/guest", 0755));
    OK(vfscale_write_file(task, "/guest/evil", "x", 1));
    OK(vfscale_chmod(task, "/guest/evil", 06755));
    OK(vfscale_symlink(task, "/etc/passwd", "/guest/trap"));
    OK(vfscale_mknodat(task, AT_FDCWD, "/guest/null", S_IFCHR | 0666, makedev(1, 3)));
    snprintf(path, sizeof path, "%s/guest", folder);
    options.flags = VFSCALE_TRANSFER_SKIP_OUTER_LINKS;
    OK(vfscale_export(task, "/guest", path, &options, sizeof options, &done));
    CHECK(done.files == 2 && done.skipped == 2);
    snprintf(path, sizeof path, "%s/guest/evil", folder);
    CHECK(stat(path, &host_st) == 0 && (host_st.st_mode & 07777) == 0755);
    snprintf(path, sizeof path, "%s/guest2", folder);
    options.flags = VFSCALE_TRANSFER_REFUSE_OUTER_LINKS;
    IS(-EXDEV, vfscale_export(task, "/guest", path, &options, sizeof options, &done));
    options.flags |= VFSCALE_TRANSFER_SKIP_OUTER_LINKS;
    IS(-EINVAL, vfscale_export(task, "/guest", path, &options, sizeof options, &done));
    IS(-ENOENT, vfscale_chmod(task, "/\x1b[2J", 0600));
    CHECK(has("/\\x1b[2J"));

    snprintf(path, sizeof path, "%s/disk.vfs", folder);
    IS(-ENOENT, vfscale_fs_volume(path, NULL, 0, &disk));
    CHECK(has("does not exist"));
    memset(&volume, 0, sizeof volume);
    volume.create_size = 64 << 20;
    volume.cache_size = 16 << 20;
    volume.sync_interval_ms = -1;
    OK(vfscale_fs_volume(path, &volume, sizeof volume, &disk));
    IS(1, vfscale_fs_is_new(disk));
    OK(vfscale_task_new(disk, NULL, 0, &own));
    OK(vfscale_replace_file(own, "/state", "kept", 4, 1));
    OK(vfscale_fs_sync(disk));
    OK(vfscale_fs_prove(disk));
    trims(own);
    IS(-EBUSY, vfscale_fs_close(disk));
    OK(vfscale_task_free(own));
    OK(vfscale_fs_close(disk));
    volume.flags = VFSCALE_VOLUME_READ_ONLY;
    OK(vfscale_fs_volume(path, &volume, sizeof volume, &disk));
    IS(0, vfscale_fs_is_new(disk));
    OK(vfscale_task_new(disk, NULL, 0, &own));
    IS(4, vfscale_read_file(own, "/state", path, sizeof path));
    IS(-EROFS, vfscale_mkdir(own, "/d", 0755));
    IS(-EROFS, vfscale_trim_fs(own, AT_FDCWD, "/", NULL));
    OK(vfscale_task_free(own));
    OK(vfscale_fs_close(disk));
}

/* Options of images of Ceph RBD, without a cluster; on_ceph.c has the rest. */
/* Opens a branch, and writes its name and `text` to a file. */
static void write_in(struct vfscale_pool *pool, const char *name, const char *text) {
    struct vfscale_fs *tree;
    struct vfscale_task *own;

    OK(vfscale_pool_open(pool, name, NULL, 0, &tree));
    OK(vfscale_task_new(tree, NULL, 0, &own));
    OK(vfscale_write_file(own, "/text", text, strlen(text)));
    IS(-EBUSY, vfscale_pool_delete(pool, name));
    IS(-EBUSY, vfscale_pool_close(pool));
    OK(vfscale_task_free(own));
    OK(vfscale_fs_close(tree));
}

#include "branches.h"
static void branches(const char *folder) {
    struct vfscale_pool_options options;
    struct vfscale_volume_options volume;
    struct vfscale_pool *pool, *other;
    struct vfscale_pool_usage usage;
    struct vfscale_branch found[4];
    struct vfscale_difference difference;
    struct vfscale_diff *diff;
    struct vfscale_merged merged;
    struct vfscale_conflict conflict;
    struct vfscale_fs *tree;
    char path[4096], kept[136];

    snprintf(path, sizeof path, "%s/branches.vfs", folder);
    memset(&options, 0, sizeof options);
    IS(-ENOENT, vfscale_pool_new(path, NULL, 0, &pool));
    memset(&volume, 0, sizeof volume);
    volume.create_size = 64 << 20;
    OK(vfscale_fs_volume(path, &volume, sizeof volume, &tree));
    IS(-EBUSY, vfscale_pool_new(path, NULL, 0, &pool));
    OK(vfscale_fs_close(tree));
    IS(-EINVAL, vfscale_pool_new(path, NULL, 0, &pool));
    options.flags = 64;
    IS(-EINVAL, vfscale_pool_new(path, &options, sizeof options, &pool));
    options.flags = VFSCALE_POOL_CONVERT;
    OK(vfscale_cache_budget_new(32 << 20, &options.cache_budget));
    OK(vfscale_pool_new(path, &options, sizeof options, &pool));
    OK(vfscale_cache_budget_free(options.cache_budget));
    IS(-EBADF, vfscale_fs_close((struct vfscale_fs *)pool));
    CHECK(has("really a struct vfscale_pool"));

    OK(vfscale_pool_fork(pool, "main", "a", 0));
    OK(vfscale_pool_fork(pool, "main", "fixed", VFSCALE_FORK_READ_ONLY));
    OK(vfscale_pool_fork(pool, "main", "b", VFSCALE_FORK_TEMPORARY | VFSCALE_FORK_AS_SYNCED));
    IS(-EINVAL, vfscale_pool_fork(pool, "main", "c",
                                  VFSCALE_FORK_READ_ONLY | VFSCALE_FORK_TEMPORARY));
    IS(-EINVAL, vfscale_pool_fork(pool, "main", "c", 8));
    IS(-EEXIST, vfscale_pool_fork(pool, "main", "a", 0));
    IS(-ENOENT, vfscale_pool_fork(pool, "none", "c", 0));
    IS(-EFAULT, vfscale_pool_fork(pool, "main", NULL, 0));
    IS(-EINVAL, vfscale_pool_fork(pool, "main", "\xff", 0));
    write_in(pool, "a", "one");
    IS(-ENOENT, vfscale_pool_open(pool, "none", NULL, 0, &tree));
    IS(4, vfscale_pool_branches(pool, NULL, 0));
    IS(4, vfscale_pool_branches(pool, found, 4));
    CHECK(strcmp(found[0].name, "a") == 0 && found[0].size == 64 << 20 && found[0].own > 0);
    CHECK(strcmp(found[2].name, "fixed") == 0 && found[2].read_only && !found[3].read_only);
    OK(vfscale_pool_usage(pool, &usage));
    CHECK(usage.size > 64 << 20 && usage.free > 0 && usage.free < usage.size);

    OK(vfscale_pool_diff(pool, "main", "a", &diff));
    IS(1, vfscale_next_difference(diff, &difference));
    CHECK(difference.kind == VFSCALE_DIFFERENCE_ADDED && strcmp(difference.path, "/text") == 0);
    CHECK(difference.path_len == 5 && difference.other_len == 0 && difference.changes == 0);
    OK(vfscale_next_difference(diff, &difference));
    OK(vfscale_diff_free(diff));
    IS(-EBADF, vfscale_next_difference(diff, &difference));
    IS(-ENOENT, vfscale_pool_diff(pool, "main", "none", &diff));

    OK(vfscale_pool_fork(pool, "main", "other", 0));
    write_in(pool, "other", "1");
    IS(0, vfscale_pool_merge(pool, "a", "main", VFSCALE_MERGE_DRY_RUN, &merged, NULL, 0));
    CHECK(merged.added == 1 && merged.removed == 0 && merged.moved == 0 && merged.done == 0);
    IS(1, vfscale_pool_merge(pool, "a", "other", VFSCALE_MERGE_FAIL, &merged, NULL, 0));
    CHECK(merged.done == 0 && merged.added == 0);
    IS(1, vfscale_pool_merge(pool, "a", "other", 0, &merged, &conflict, 1));
    CHECK(merged.done == 1 && merged.added == 1 && merged.changed == 0 && merged.texts == 0);
    CHECK(conflict.kind == VFSCALE_CONFLICT_NAME && conflict.reserved == 0);
    CHECK(strcmp(conflict.path, "/text") == 0 && conflict.path_len == 5);
    CHECK(strcmp(conflict.beside, "/text.a") == 0 && conflict.beside_len == 7);
    IS(-EINVAL, vfscale_pool_merge(pool, "a", "other", 3, &merged, NULL, 0));
    IS(-EINVAL, vfscale_pool_merge(pool, "a", "other", 16, &merged, NULL, 0));
    IS(-EFAULT, vfscale_pool_merge(pool, "a", "other", 0, NULL, NULL, 0));
    IS(-EINVAL, vfscale_pool_merge(pool, "a", "a", 0, &merged, NULL, 0));
    IS(-ENOENT, vfscale_pool_merge(pool, "none", "a", 0, &merged, NULL, 0));
    OK(vfscale_pool_delete(pool, "other"));
    rebase_in(pool);
    apply_in(pool, folder);

    OK(vfscale_pool_adopt(pool, "main", "a"));
    IS(-ENOENT, vfscale_pool_adopt(pool, "main", "a"));
    OK(vfscale_pool_fork(pool, "main", "a", 0));
    write_in(pool, "a", "two, and more");
    OK(vfscale_pool_diff(pool, "main", "a", &diff));
    IS(1, vfscale_next_difference(diff, &difference));
    CHECK(difference.kind == VFSCALE_DIFFERENCE_CHANGED);
    CHECK(difference.changes & VFSCALE_CHANGED_CONTENT);
    OK(vfscale_diff_free(diff));
    IS(-ERANGE, vfscale_pool_rollback(pool, "a", kept, 8));
    IS(3, vfscale_pool_rollback(pool, "a", kept, sizeof kept));
    CHECK(strcmp(kept, "a@1") == 0);
    history_in(pool);
    OK(vfscale_pool_rename(pool, "a@1", "kept"));
    IS(-EINVAL, vfscale_pool_rename(pool, "main", "first"));
    OK(vfscale_pool_delete(pool, "kept"));
    IS(-EINVAL, vfscale_pool_delete(pool, "main"));
    IS(-EBUSY, vfscale_pool_new(path, NULL, 0, &other));
    OK(vfscale_pool_close(pool));
    IS(-EBADF, vfscale_pool_usage(pool, &usage));

    memset(&options, 0, sizeof options);
    options.flags = VFSCALE_POOL_READ_ONLY;
    OK(vfscale_pool_new(path, &options, sizeof options, &pool));
    IS(3, vfscale_pool_branches(pool, found, 4)); /* The temporary one is gone. */
    OK(vfscale_pool_close(pool));
}

static void options_of_ceph(const char *folder) {
    struct vfscale_volume_options options;
    struct vfscale_fs *disk;
    char path[512];
    snprintf(path, sizeof path, "%s/own.vfs", folder);
    memset(&options, 0, sizeof options);
    options.create_size = 32 << 20;
    /* An image in a file has no use for a cluster, which need not be there. */
    options.ceph_conf = "/none/ceph.conf";
    options.ceph_id = "nobody";
    options.patience_s = 5;
    OK(vfscale_fs_volume(path, &options, sizeof options, &disk));
    OK(vfscale_fs_close(disk));
    options.flags = VFSCALE_VOLUME_TAKE_OVER;
    IS(-EOPNOTSUPP, vfscale_fs_volume(path, &options, sizeof options, &disk));
    CHECK(has("only an image of Ceph RBD is taken over"));
    options.flags = 0;
    options.ceph_id = "\xff";
    IS(-EINVAL, vfscale_fs_volume(path, &options, sizeof options, &disk));
    CHECK(has("the user of Ceph is not UTF-8"));
    options.ceph_id = NULL;
    IS(-EIO, vfscale_fs_volume("rbd:none", &options, sizeof options, &disk));
    CHECK(has("rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]"));
    IS(-EIO, vfscale_fs_volume("rbd:pool/image", &options, sizeof options, &disk));
    CHECK(has("install the package librbd1") || has("cannot read /none/ceph.conf"));
}

static void idle_memory(void) {
    static char data[4 << 20];
    ssize_t max = vfscale_get_idle_memory_max();
    CHECK(max >= 16 << 20);
    OK(vfscale_write_file(task, "/idle", data, sizeof data));
    OK(vfscale_unlink(task, "/idle"));
    CHECK(vfscale_idle_memory() >= 0);
    OK(vfscale_set_idle_memory_max(1 << 20));
    IS(1 << 20, vfscale_get_idle_memory_max());
    OK(vfscale_set_idle_memory_max(max));
    OK(vfscale_trim_idle_memory());
}

/* A program that evaluates arguments from the right, as compilers for x86-64 do, has the text of
 * printf("%d %s", call, vfscale_error()) before the call. */
static void *texts_of_errors(void *unused) {
    char path[4000], line[5000];
    const char *held = vfscale_error();
    size_t length;
    CHECK(strcmp(held, "") == 0);
    memset(path, 'a', sizeof path);
    path[0] = '/';
    for (length = 100; length < sizeof path; length += 500) {
        path[length] = '\0';
        CHECK(vfscale_unlink(task, path) < 0);
        CHECK(strstr(held, path) != NULL && held == vfscale_error());
        path[length] = 'a';
    }
    snprintf(line, sizeof line, "%d %s", vfscale_mkdir(task, "/no/dir", 0755), vfscale_error());
    CHECK(strstr(line, "-2 mkdirat /no/dir: ") == line);
    return unused;
}

static void *make_calls(void *number) {
    struct vfscale_task *own;
    char path[32];
    int n, fd;
    for (n = 0; n < 200; n++) {
        snprintf(path, sizeof path, "/t%d-%d", *(int *)number, n);
        fd = vfscale_open(task, path, O_CREAT | O_RDWR, 0644);
        CHECK(fd >= 0);
        IS(1, vfscale_write(task, fd, "x", 1));
        OK(vfscale_close(task, fd));
        OK(vfscale_unlink(task, path));
        OK(vfscale_task_fork(task, &own));
        IS(-ENOENT, vfscale_unlink(own, path));
        CHECK(strstr(vfscale_error(), path) != NULL);
        OK(vfscale_task_free(own));
        IS(-EBADF, vfscale_unlink(own, path));
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    int n, numbers[4] = {0, 1, 2, 3};
    CHECK(pthread_create(&all[0], NULL, texts_of_errors, NULL) == 0);
    CHECK(pthread_join(all[0], NULL) == 0);
    for (n = 0; n < 4; n++)
        CHECK(pthread_create(&all[n], NULL, make_calls, &numbers[n]) == 0);
    for (n = 0; n < 4; n++)
        CHECK(pthread_join(all[n], NULL) == 0);
}

static void child_of_a_fork(void) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(vfscale_mkdir(task, "/in-child", 0755) == -ENOTRECOVERABLE ? 0 : 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv) {
    make_tree();
    handles();
    descriptors();
    input_and_output();
    attributes();
    names();
    directories();
    extended_attributes();
    locks_and_pipes();
    tasks();
    mounts();
    whole_files();
    watching();
    if (argc > 1) {
        host(argv[1]);
        discards(argv[1]);
        budgets(argv[1]);
        branches(argv[1]);
        views(argv[1]);
        options_of_ceph(argv[1]);
    }
    idle_memory();
    threads();
    child_of_a_fork();
    OK(vfscale_task_free(task));
    OK(vfscale_fs_close(fs));
    IS(-EBADF, vfscale_fs_close(fs));
    printf("every_call: passed\n");
    return 0;
}
