/* The calls of POSIX that fs has. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "addon.h"

#define TASK ((struct vfscale_task *)request->handle)
#define FD ((int)request->n[0])

/* Marks a descriptor that is not one of int's. */
static int descriptor(struct request *request) {
    return request->n[0] == FD ? FD : -1;
}

static void run_open(struct request *request) {
    request->result = vfscale_open(TASK, request->paths[0], (int)request->n[0] | O_CLOEXEC,
                                   (mode_t)request->n[1]);
}

static void run_close(struct request *request) {
    request->result = vfscale_close(TASK, descriptor(request));
}

/* n: descriptor, offset in the view, length, position or -1. Never outside of the view. */
static int in_view(struct request *request) {
    uint64_t offset = (uint64_t)request->n[1], length = (uint64_t)request->n[2];
    if (offset <= request->size && length <= request->size - offset)
        return 1;
    request->result = -EINVAL;
    return 0;
}

static void run_read(struct request *request) {
    if (!in_view(request))
        return;
    char *at = request->data + request->n[1];
    size_t length = (size_t)request->n[2];
    request->result = request->n[3] < 0
                          ? vfscale_read(TASK, descriptor(request), at, length)
                          : vfscale_pread(TASK, descriptor(request), at, length, request->n[3]);
}

static void run_write(struct request *request) {
    /* All of a text. */
    if (request->n[2] < 0)
        request->n[2] = (int64_t)request->size;
    if (!in_view(request))
        return;
    const char *at = request->data + request->n[1];
    size_t length = (size_t)request->n[2];
    request->result = request->n[3] < 0
                          ? vfscale_write(TASK, descriptor(request), at, length)
                          : vfscale_pwrite(TASK, descriptor(request), at, length, request->n[3]);
}

static void set_fields(struct request *request, const struct vfscale_stat *st) {
    const uint64_t fields[FIELDS_MAX] = {
        st->st_dev, st->st_mode, st->st_nlink, st->st_uid, st->st_gid, st->st_rdev,
        st->st_blksize, st->st_ino, st->st_size, st->st_blocks,
        (uint64_t)st->st_atim.tv_sec, st->st_atim.tv_nsec,
        (uint64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
        (uint64_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
        (uint64_t)st->st_btim.tv_sec, st->st_btim.tv_nsec,
    };
    memcpy(request->fields, fields, sizeof fields);
    request->shape = SHAPE_FIELDS;
}

static void run_stat(struct request *request) {
    struct vfscale_stat st;
    request->result = request->n[0] ? vfscale_stat(TASK, request->paths[0], &st)
                                    : vfscale_lstat(TASK, request->paths[0], &st);
    if (request->result == 0)
        set_fields(request, &st);
}

static void run_fstat(struct request *request) {
    struct vfscale_stat st;
    request->result = vfscale_fstat(TASK, descriptor(request), &st);
    if (request->result == 0)
        set_fields(request, &st);
}

static void run_statfs(struct request *request) {
    struct vfscale_statfs st;
    request->result = vfscale_statfs(TASK, request->paths[0], &st);
    if (request->result < 0)
        return;
    const uint64_t fields[] = {st.f_type, st.f_bsize, st.f_blocks, st.f_bfree,
                               st.f_bavail, st.f_files, st.f_ffree};
    memcpy(request->fields, fields, sizeof fields);
    request->shape = SHAPE_FIELDS;
}

static void run_access(struct request *request) {
    request->result = vfscale_access(TASK, request->paths[0], (int)request->n[0]);
}

static void run_mkdir(struct request *request) {
    request->result = vfscale_mkdir(TASK, request->paths[0], (mode_t)request->n[0]);
}

static void run_rmdir(struct request *request) {
    request->result = vfscale_rmdir(TASK, request->paths[0]);
}

static void run_unlink(struct request *request) {
    request->result = vfscale_unlink(TASK, request->paths[0]);
}

static void run_remove_all(struct request *request) {
    request->result = vfscale_remove_all(TASK, request->paths[0]);
}

static void run_rename(struct request *request) {
    request->result = vfscale_rename(TASK, request->paths[0], request->paths[1]);
}

static void run_link(struct request *request) {
    request->result = vfscale_link(TASK, request->paths[0], request->paths[1]);
}

static void run_symlink(struct request *request) {
    request->result = vfscale_symlink(TASK, request->paths[0], request->paths[1]);
}

/* A path as result: a text, or with n[0] a buffer. */
static void path_result(struct request *request, const char *path, ssize_t length) {
    request->result = length;
    if (length >= 0)
        request->result = bytes_add(&request->out, path, (size_t)length);
    request->shape = request->n[0] ? SHAPE_BUFFER : SHAPE_TEXT;
}

static void run_readlink(struct request *request) {
    char target[PATH_ROOM];
    path_result(request, target,
                vfscale_readlink(TASK, request->paths[0], target, sizeof target));
}

static void run_realpath(struct request *request) {
    char path[PATH_ROOM];
    path_result(request, path, vfscale_realpath(TASK, request->paths[0], path, sizeof path));
}

static void run_truncate(struct request *request) {
    request->result = vfscale_truncate(TASK, request->paths[0], request->n[0]);
}

static void run_ftruncate(struct request *request) {
    request->result = vfscale_ftruncate(TASK, descriptor(request), request->n[1]);
}

static void run_fsync(struct request *request) {
    request->result = vfscale_fsync(TASK, descriptor(request));
}

static void run_fdatasync(struct request *request) {
    request->result = vfscale_fdatasync(TASK, descriptor(request));
}

static void run_chmod(struct request *request) {
    request->result = vfscale_fchmodat(TASK, AT_FDCWD, request->paths[0], (mode_t)request->n[1],
                                       request->n[0] ? 0 : AT_SYMLINK_NOFOLLOW);
}

static void run_fchmod(struct request *request) {
    request->result = vfscale_fchmod(TASK, descriptor(request), (mode_t)request->n[1]);
}

static void run_chown(struct request *request) {
    request->result = vfscale_fchownat(TASK, AT_FDCWD, request->paths[0], (uid_t)request->n[1],
                                       (gid_t)request->n[2],
                                       request->n[0] ? 0 : AT_SYMLINK_NOFOLLOW);
}

static void run_fchown(struct request *request) {
    request->result = vfscale_fchown(TASK, descriptor(request), (uid_t)request->n[1],
                                     (gid_t)request->n[2]);
}

/* Seconds as libuv passes them on: in microseconds. */
static struct timespec time_of(double seconds) {
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    time.tv_nsec -= time.tv_nsec % 1000;
    if (time.tv_nsec < 0) {
        time.tv_nsec += 1000000000;
        time.tv_sec -= 1;
    }
    return time;
}

static void run_utimes(struct request *request) {
    const struct timespec times[] = {time_of(request->f[0]), time_of(request->f[1])};
    request->result = vfscale_utimensat(TASK, AT_FDCWD, request->paths[0], times,
                                        request->n[0] ? 0 : AT_SYMLINK_NOFOLLOW);
}

static void run_futimes(struct request *request) {
    const struct timespec times[] = {time_of(request->f[0]), time_of(request->f[1])};
    request->result = vfscale_futimens(TASK, descriptor(request), times);
}

static void run_mkfifo(struct request *request) {
    request->result = vfscale_mkfifo(TASK, request->paths[0], (mode_t)request->n[0]);
}

const struct op calls_ops[] = {
    {"open", "tpnn", run_open, 0},
    {"close", "tn", run_close, 0},
    {"read", "tnonnn", run_read, 0},
    {"write", "tndnnn", run_write, 0},
    {"stat", "tpn", run_stat, 0},
    {"fstat", "tn", run_fstat, 0},
    {"statfs", "tp", run_statfs, 0},
    {"access", "tpn", run_access, 0},
    {"mkdir", "tpn", run_mkdir, 0},
    {"rmdir", "tp", run_rmdir, 0},
    {"unlink", "tp", run_unlink, 0},
    {"removeAll", "tp", run_remove_all, 0},
    {"rename", "tpp", run_rename, 0},
    {"link", "tpp", run_link, 0},
    {"symlink", "tpp", run_symlink, 0},
    {"readlink", "tpn", run_readlink, 0},
    {"realpath", "tpn", run_realpath, 0},
    {"truncate", "tpn", run_truncate, 0},
    {"ftruncate", "tnn", run_ftruncate, 0},
    {"fsync", "tn", run_fsync, 0},
    {"fdatasync", "tn", run_fdatasync, 0},
    {"chmod", "tpnn", run_chmod, 0},
    {"fchmod", "tnn", run_fchmod, 0},
    {"chown", "tpnnn", run_chown, 0},
    {"fchown", "tnnn", run_fchown, 0},
    {"utimes", "tpnff", run_utimes, 0},
    {"futimes", "tnff", run_futimes, 0},
    {"mkfifo", "tpn", run_mkfifo, 0},
    {NULL, NULL, NULL, 0},
};
