/* Calls of fs that are several of POSIX: whole files, and directories. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "addon.h"

#define TASK ((struct vfscale_task *)request->handle)

/* Files. */

/* Reads from the position of a descriptor to the end. */
int whole_read(struct vfscale_task *task, int fd, struct bytes *out) {
    struct vfscale_stat st;
    int result = vfscale_fstat(task, fd, &st);
    size_t ahead;
    ssize_t done;
    char *grown;
    if (result < 0)
        return result;
    ahead = S_ISREG(st.st_mode) ? st.st_size : 0;
    for (;;) {
        size_t room = ahead > out->size ? ahead - out->size + 1 : out->size + 8192;
        if (room > out->room - out->size) {
            grown = room > SIZE_MAX / 4 ? NULL : realloc(out->data, out->size + room);
            if (grown == NULL)
                return -ENOMEM;
            out->data = grown;
            out->room = out->size + room;
        }
        done = vfscale_read(task, fd, out->data + out->size, out->room - out->size);
        if (done <= 0)
            return (int)done;
        out->size += (size_t)done;
    }
}

/* Marks an error after a file was opened, whose error of Node has no path. */
static int64_t after_open(int64_t result) { return result < 0 ? result - AFTER_OPEN : result; }

static void whole_result(struct request *request, int result) {
    request->result = result < 0 ? result : 0;
    request->shape = request->n[1] ? SHAPE_TEXT : SHAPE_BUFFER;
}

/* Reads a file to the buffer of the environment, and returns its size; more than SCRATCH_SIZE if it
 * does not fit. `out` has what was read if it can't be read again then. */
static ssize_t read_small(struct request *request, int fd) {
    char *scratch = request->environment->scratch;
    struct vfscale_stat st;
    ssize_t size = 0, done;
    do {
        done = vfscale_read(TASK, fd, scratch + size, SCRATCH_SIZE - (size_t)size);
        if (done < 0)
            return done;
        size += done;
    } while (done > 0 && size < SCRATCH_SIZE);
    if (size < SCRATCH_SIZE)
        return size;
    done = vfscale_fstat(TASK, fd, &st);
    if (done < 0)
        return done;
    if (S_ISREG(st.st_mode) && !request->n[1])
        return SCRATCH_SIZE + 1;
    done = bytes_add(&request->out, scratch, (size_t)size);
    return done < 0 ? done : SCRATCH_SIZE + 1;
}

/* n: flags, whether the result is a text. For a call that is made at once, a file that fits is
 * in the buffer of the environment; a larger one, of which the result is no text, JavaScript
 * reads itself to memory of its own: the result is more than the buffer has. */
static void run_read_file(struct request *request) {
    ssize_t size = SCRATCH_SIZE + 1;
    int fd, result;

    fd = vfscale_open(TASK, request->paths[0], (int)request->n[0] | O_CLOEXEC, 0666);
    if (fd < 0) {
        request->result = fd;
        return;
    }
    if (request->environment != NULL)
        size = read_small(request, fd);
    if (size < 0) {
        request->result = after_open(size);
    } else if (size <= SCRATCH_SIZE || (request->environment != NULL &&
                                        request->out.size == 0)) {
        request->result = size;
        request->shape = SHAPE_SCRATCH;
    } else {
        result = whole_read(TASK, fd, &request->out);
        whole_result(request, result);
        request->result = after_open(request->result);
    }
    vfscale_close(TASK, fd);
}

static void run_read_descriptor(struct request *request) {
    whole_result(request, whole_read(TASK, (int)request->n[0], &request->out));
}

static ssize_t write_all(struct vfscale_task *task, int fd, const char *data, size_t size) {
    ssize_t done;
    while (size > 0) {
        done = vfscale_write(task, fd, data, size);
        if (done < 0)
            return done;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

/* n: flags, mode, whether it is durable at the return. */
static void run_write_file(struct request *request) {
    int fd, closed;
    fd = vfscale_open(TASK, request->paths[0], (int)request->n[0] | O_CLOEXEC,
                      (mode_t)request->n[1]);
    if (fd < 0) {
        request->result = fd;
        return;
    }
    request->result = write_all(TASK, fd, request->data, request->size);
    if (request->result == 0 && request->n[2])
        request->result = vfscale_fsync(TASK, fd);
    closed = vfscale_close(TASK, fd);
    if (request->result == 0)
        request->result = closed;
    request->result = after_open(request->result);
}

static void run_write_descriptor(struct request *request) {
    request->result = write_all(TASK, (int)request->n[0], request->data, request->size);
    if (request->result == 0 && request->n[1])
        request->result = vfscale_fsync(TASK, (int)request->n[0]);
}

/* Copies the data of open files. */
static int copy_data(struct vfscale_task *task, int from, int to) {
    char *buffer;
    ssize_t done;
    do
        done = vfscale_copy_file_range(task, from, NULL, to, NULL, 1 << 30, 0);
    while (done > 0);
    if (done != -EXDEV && done != -EINVAL && done != -EOPNOTSUPP)
        return (int)done;
    buffer = malloc(SCRATCH_SIZE);
    if (buffer == NULL)
        return -ENOMEM;
    while ((done = vfscale_read(task, from, buffer, SCRATCH_SIZE)) > 0)
        if ((done = write_all(task, to, buffer, (size_t)done)) < 0)
            break;
    free(buffer);
    return (int)done;
}

/* As libuv: the new file has the permissions of the old one. n: COPYFILE_*: 1 is EXCL. */
static void run_copy_file(struct request *request) {
    struct vfscale_task *task = TASK;
    struct vfscale_stat from_st, to_st;
    int from, to = -1, result, closed, made = 0, flags = O_WRONLY | O_CREAT | O_CLOEXEC;

    from = vfscale_open(task, request->paths[0], O_RDONLY | O_CLOEXEC, 0);
    result = from < 0 ? from : vfscale_fstat(task, from, &from_st);
    if (result >= 0) {
        if (request->n[0] & 1)
            flags |= O_EXCL;
        to = vfscale_open(task, request->paths[1], flags, from_st.st_mode & 07777);
        result = to < 0 ? to : vfscale_fstat(task, to, &to_st);
    }
    if (result >= 0 && (from_st.st_dev != to_st.st_dev || from_st.st_ino != to_st.st_ino)) {
        made = 1;
        result = vfscale_ftruncate(task, to, 0);
        if (result >= 0)
            result = vfscale_fchmod(task, to, from_st.st_mode & 07777);
        if (result >= 0)
            result = copy_data(task, from, to);
    }
    if (to >= 0) {
        closed = vfscale_close(task, to);
        if (result >= 0)
            result = closed;
        if (result < 0 && made)
            vfscale_unlink(task, request->paths[1]);
    }
    if (from >= 0)
        vfscale_close(task, from);
    request->result = result < 0 ? result : 0;
}

/* Directories. */

/* An entry: where its name is among the records, and the bytes of it that come first after what all
 * names begin with, by which most are ordered. */
struct name {
    uint64_t key;
    uint32_t at;
    uint16_t size;
    char type;
};

static int by_name(const void *a, const void *b, void *records) {
    return strcmp((const char *)records + ((const struct name *)a)->at,
                  (const char *)records + ((const struct name *)b)->at);
}

/* Reads all records of a directory to `names`, and where their names are to `order`. */
static int read_names(struct vfscale_dir *dir, struct bytes *names, struct bytes *order) {
    const struct dirent64 *record;
    struct name name;
    ssize_t size;
    char *grown;
    int result;
    for (;;) {
        if (names->size > UINT32_MAX / 2)
            return -EFBIG;
        if (names->room - names->size < 1024) {
            names->room = names->room * 2 + 8192;
            if ((grown = realloc(names->data, names->room)) == NULL)
                return -ENOMEM;
            names->data = grown;
        }
        size = vfscale_getdents64(dir, names->data + names->size, names->room - names->size);
        if (size <= 0)
            return (int)size;
        for (size += (ssize_t)names->size; names->size < (size_t)size;
             names->size += record->d_reclen) {
            record = (const void *)(names->data + names->size);
            if (strcmp(record->d_name, ".") == 0 || strcmp(record->d_name, "..") == 0)
                continue;
            name = (struct name){0, (uint32_t)(record->d_name - names->data),
                                 (uint16_t)strlen(record->d_name),
                                 (char)('a' + record->d_type)};
            if ((result = bytes_add(order, &name, sizeof name)) < 0)
                return result;
        }
    }
}

/* Sets the keys. */
static void set_keys(const char *all, struct name *names, size_t count) {
    size_t common = names[0].size, at, byte;
    for (at = 1; at < count; at++) {
        for (byte = 0; byte < common && all[names[at].at + byte] == all[names[0].at + byte];)
            byte++;
        common = byte;
    }
    for (at = 0; at < count; at++)
        for (byte = 0; byte < 8; byte++)
            names[at].key = names[at].key << 8 |
                            (common + byte < names[at].size
                                 ? (unsigned char)all[names[at].at + common + byte]
                                 : 0);
}

/* Sorts by the keys, from the last byte to the first, without those in which all are equal. Returns
 * the one of the two arrays that has the result. */
static struct name *sort_keys(struct name *names, struct name *spare, size_t count) {
    size_t starts[256], at, sum, of;
    struct name *other;
    int shift;
    for (shift = 0; shift < 64; shift += 8) {
        memset(starts, 0, sizeof starts);
        for (at = 0; at < count; at++)
            starts[names[at].key >> shift & 255]++;
        if (starts[names[0].key >> shift & 255] == count)
            continue;
        for (at = sum = 0; at < 256; at++) {
            of = starts[at];
            starts[at] = sum;
            sum += of;
        }
        for (at = 0; at < count; at++)
            spare[starts[names[at].key >> shift & 255]++] = names[at];
        other = names;
        names = spare;
        spare = other;
    }
    return names;
}

/* Puts names in the order of their bytes, as libuv does; `order` has room for them twice. */
static const struct name *sort_names(const char *all, struct bytes *order, size_t count) {
    struct name *names = (void *)order->data, moved;
    size_t at, to, from;
    set_keys(all, names, count);
    if (count > 32)
        names = sort_keys(names, names + count, count);
    else
        for (at = 1; at < count; at++) {
            moved = names[at];
            for (to = at; to > 0 && names[to - 1].key > moved.key; to--)
                names[to] = names[to - 1];
            names[to] = moved;
        }
    for (from = 0; from < count; from = at) {
        for (at = from + 1; at < count && names[at].key == names[from].key;)
            at++;
        if (at - from > 1)
            qsort_r(names + from, at - from, sizeof *names, by_name, (void *)all);
    }
    return names;
}

/* The names in order, with zeros between them. n: whether a letter before each is its type, whether
 * the result is a buffer. */
static void run_readdir(struct request *request) {
    struct bytes names = {0}, order = {0}, *out = &request->out;
    struct vfscale_dir *dir;
    const struct name *name;
    size_t count, at;
    int result = vfscale_opendir(TASK, request->paths[0], &dir);
    if (result >= 0) {
        result = read_names(dir, &names, &order);
        vfscale_closedir(dir);
    }
    count = order.size / sizeof *name;
    /* Room to sort in, and for the result. */
    if (result >= 0 && count > 0 && (result = bytes_reserve(&order, order.size)) == 0 &&
        (result = bytes_reserve(out, names.size)) == 0) {
        name = sort_names(names.data, &order, count);
        for (at = 0; result >= 0 && at < count; at++, name++) {
            if (request->n[0])
                result = bytes_add(out, &name->type, 1);
            if (result >= 0)
                result = bytes_add(out, names.data + name->at, name->size + (at + 1 < count));
        }
    }
    free(names.data);
    free(order.data);
    request->result = result;
    request->shape = request->n[1] ? SHAPE_BUFFER : SHAPE_TEXT;
}

static int is_directory(struct vfscale_task *task, const char *path) {
    struct vfscale_stat st;
    int result = vfscale_stat(task, path, &st);
    return result < 0 ? result : S_ISDIR(st.st_mode);
}

/* Makes the directories that are missing, from the last that exists on; the result is the first
 * that was made, or 0. */
static void run_make_directories(struct request *request) {
    struct vfscale_task *task = TASK;
    char *path = request->paths[0];
    size_t length = strlen(path), end = length, first = 0;
    int result, found;
    mode_t mode = (mode_t)request->n[0];

    while (end > 1 && path[end - 1] == '/')
        path[--end] = 0;
    length = end;
    while ((result = vfscale_mkdir(task, path, mode)) == -ENOENT) {
        while (end > 0 && path[end - 1] != '/')
            end--;
        while (end > 0 && path[end - 1] == '/')
            end--;
        if (end == 0)
            break;
        path[end] = 0;
    }
    if (result == -EEXIST && (found = is_directory(task, path)) != 1) {
        request->result = end < length ? -ENOTDIR : found == -ENOENT ? -ENOENT : -EEXIST;
        return;
    }
    if (result == 0)
        first = end;
    for (; (result == 0 || result == -EEXIST) && end < length; end = strlen(path)) {
        path[end] = '/';
        result = vfscale_mkdir(task, path, mode);
        if (result == 0 && first == 0)
            first = strlen(path);
    }
    request->result = result == -EEXIST ? 0 : result;
    if (request->result == 0 && first > 0) {
        path[first] = 0;
        request->shape = SHAPE_TEXT;
        request->result = bytes_add(&request->out, path, first);
    }
}

/* A new directory whose name is the prefix and six letters. n: whether the result is a buffer. */
static void run_make_temporary(struct request *request) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(request->paths[0]);
    char path[PATH_ROOM + 8];
    unsigned char random[6];
    int at, tries, result = -EEXIST;

    memcpy(path, request->paths[0], length);
    path[length + 6] = 0;
    for (tries = 0; result == -EEXIST && tries < 100; tries++) {
        if (getrandom(random, sizeof random, 0) != sizeof random) {
            result = -EIO;
            break;
        }
        for (at = 0; at < 6; at++)
            path[length + (size_t)at] = letters[random[at] % (sizeof letters - 1)];
        result = vfscale_mkdir(TASK, path, 0700);
    }
    request->result = result < 0 ? result : bytes_add(&request->out, path, length + 6);
    request->shape = request->n[0] ? SHAPE_BUFFER : SHAPE_TEXT;
}

const struct op whole_ops[] = {
    {"readFile", "tpnn", run_read_file, 0},
    {"readDescriptor", "tnn", run_read_descriptor, 0},
    {"writeFile", "tpdnnn", run_write_file, 0},
    {"writeDescriptor", "tndn", run_write_descriptor, 0},
    {"copyFile", "tppn", run_copy_file, 0},
    {"readdir", "tpnn", run_readdir, 0},
    {"makeDirectories", "tpn", run_make_directories, 0},
    {"makeTemporary", "tpn", run_make_temporary, 0},
    {NULL, NULL, NULL, 0},
};
