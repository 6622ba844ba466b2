/* The tree as a file system of Tcl, so that `open`, `file`, `glob` and `cd` of SQLite's own tests
 * see the files that SQLite sees. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utime.h>

#include <tcl.h>

#include "suite.h"

/* Returns 0, or -1 with `errno`, as Tcl expects it. */
static int told(int64_t result) {
    if (result >= 0)
        return 0;
    errno = (int)-result;
    return -1;
}

static const char *path_of(Tcl_Obj *path) {
    Tcl_Obj *normal = Tcl_FSGetNormalizedPath(NULL, path);
    return normal == NULL ? "" : Tcl_GetString(normal);
}

static int is_ours(Tcl_Obj *path, ClientData *data) {
    const char *text = path_of(path);
    size_t length = strlen(suite_folder);

    *data = NULL;
    return strncmp(text, suite_folder, length) == 0 && (text[length] == 0 || text[length] == '/')
               ? TCL_OK
               : -1;
}

static void convert(const struct vfscale_stat *from, Tcl_StatBuf *to) {
    memset(to, 0, sizeof *to);
    to->st_dev = from->st_dev;
    to->st_ino = from->st_ino;
    to->st_mode = from->st_mode;
    to->st_nlink = from->st_nlink;
    to->st_uid = from->st_uid;
    to->st_gid = from->st_gid;
    to->st_size = (off_t)from->st_size;
    to->st_atime = from->st_atim.tv_sec;
    to->st_mtime = from->st_mtim.tv_sec;
    to->st_ctime = from->st_ctim.tv_sec;
}

static int tree_stat(Tcl_Obj *path, Tcl_StatBuf *buf) {
    struct vfscale_stat st;
    int result = vfscale_stat(suite_task, path_of(path), &st);
    if (result == 0)
        convert(&st, buf);
    return told(result);
}

static int tree_lstat(Tcl_Obj *path, Tcl_StatBuf *buf) {
    struct vfscale_stat st;
    int result = vfscale_lstat(suite_task, path_of(path), &st);
    if (result == 0)
        convert(&st, buf);
    return told(result);
}

static int tree_access(Tcl_Obj *path, int mode) {
    return told(vfscale_access(suite_task, path_of(path), mode));
}

/* The channels: the number of the descriptor is their data. */

static int fd_of(ClientData data) { return (int)(intptr_t)data; }

static int channel_close(ClientData data, Tcl_Interp *interp) {
    (void)interp;
    return -vfscale_close(suite_task, fd_of(data));
}

static int channel_in(ClientData data, char *buf, int size, int *error) {
    ssize_t got = vfscale_read(suite_task, fd_of(data), buf, (size_t)size);
    *error = got < 0 ? (int)-got : 0;
    return got < 0 ? -1 : (int)got;
}

static int channel_out(ClientData data, const char *buf, int size, int *error) {
    ssize_t put = vfscale_write(suite_task, fd_of(data), buf, (size_t)size);
    *error = put < 0 ? (int)-put : 0;
    return put < 0 ? -1 : (int)put;
}

static Tcl_WideInt channel_seek(ClientData data, Tcl_WideInt offset, int mode, int *error) {
    int64_t at = vfscale_lseek(suite_task, fd_of(data), offset, mode);
    *error = at < 0 ? (int)-at : 0;
    return at < 0 ? -1 : at;
}

static int channel_seek_short(ClientData data, long offset, int mode, int *error) {
    return (int)channel_seek(data, offset, mode, error);
}

static int channel_truncate(ClientData data, Tcl_WideInt size) {
    return -vfscale_ftruncate(suite_task, fd_of(data), size);
}

static void channel_watch(ClientData data, int mask) {
    (void)data;
    (void)mask;
}

static const Tcl_ChannelType channel = {
    .typeName = "vfscale",
    .version = TCL_CHANNEL_VERSION_5,
    .closeProc = channel_close,
    .inputProc = channel_in,
    .outputProc = channel_out,
    .seekProc = channel_seek_short,
    .wideSeekProc = channel_seek,
    .watchProc = channel_watch,
    .truncateProc = channel_truncate,
};

static Tcl_Channel tree_open(Tcl_Interp *interp, Tcl_Obj *path, int mode, int permissions) {
    int can = mode & O_RDWR ? TCL_READABLE | TCL_WRITABLE
              : mode & O_WRONLY ? TCL_WRITABLE
                                : TCL_READABLE;
    char name[40];
    int fd = vfscale_open(suite_task, path_of(path), mode | O_CLOEXEC, (mode_t)permissions);

    if (told(fd) < 0) {
        if (interp != NULL)
            Tcl_SetObjResult(interp, Tcl_ObjPrintf("couldn't open \"%s\": %s",
                                                   Tcl_GetString(path), Tcl_PosixError(interp)));
        return NULL;
    }
    snprintf(name, sizeof name, "vfscale%d", fd);
    return Tcl_CreateChannel(&channel, name, (ClientData)(intptr_t)fd, can);
}

static int has_type(const char *path, const Tcl_GlobTypeData *types) {
    struct vfscale_stat st;
    if (types == NULL || types->type == 0)
        return vfscale_lstat(suite_task, path, &st) == 0;
    if (vfscale_stat(suite_task, path, &st) < 0)
        return 0;
    return (types->type & TCL_GLOB_TYPE_DIR && S_ISDIR(st.st_mode)) ||
           (types->type & TCL_GLOB_TYPE_FILE && S_ISREG(st.st_mode));
}

static int tree_match(Tcl_Interp *interp, Tcl_Obj *result, Tcl_Obj *path, const char *pattern,
                      Tcl_GlobTypeData *types) {
    struct vfscale_dirent entry;
    struct vfscale_dir *dir;
    char at[4400];

    (void)interp;
    if (types != NULL && types->type & TCL_GLOB_TYPE_MOUNT)
        return TCL_OK;
    if (pattern == NULL || *pattern == 0) {
        if (has_type(path_of(path), types))
            Tcl_ListObjAppendElement(NULL, result, path);
        return TCL_OK;
    }
    if (vfscale_opendir(suite_task, path_of(path), &dir) < 0)
        return TCL_OK;
    while (vfscale_readdir(dir, &entry) == 1) {
        if (strcmp(entry.d_name, ".") == 0 || strcmp(entry.d_name, "..") == 0 ||
            (entry.d_name[0] == '.' && *pattern != '.') ||
            !Tcl_StringMatch(entry.d_name, pattern))
            continue;
        snprintf(at, sizeof at, "%s/%s", path_of(path), entry.d_name);
        if (has_type(at, types)) {
            Tcl_Obj *found = Tcl_DuplicateObj(path);
            Tcl_AppendStringsToObj(found, "/", entry.d_name, NULL);
            Tcl_ListObjAppendElement(NULL, result, found);
        }
    }
    vfscale_closedir(dir);
    return TCL_OK;
}

static int tree_utime(Tcl_Obj *path, struct utimbuf *times) {
    struct timespec both[2] = {{.tv_sec = times->actime}, {.tv_sec = times->modtime}};
    return told(vfscale_utimensat(suite_task, AT_FDCWD, path_of(path), both, 0));
}

static Tcl_Obj *tree_link(Tcl_Obj *path, Tcl_Obj *to, int type) {
    char target[4096];
    ssize_t length;

    if (to == NULL) {
        length = vfscale_readlink(suite_task, path_of(path), target, sizeof target);
        if (told(length) < 0)
            return NULL;
        to = Tcl_NewStringObj(target, (int)length);
        Tcl_IncrRefCount(to);
        return to;
    }
    if (type & TCL_CREATE_SYMBOLIC_LINK)
        return told(vfscale_symlink(suite_task, Tcl_GetString(to), path_of(path))) < 0 ? NULL : to;
    return told(vfscale_link(suite_task, path_of(to), path_of(path))) < 0 ? NULL : to;
}

static const char *const attributes[] = {"-permissions", NULL};

static const char *const *tree_attributes(Tcl_Obj *path, Tcl_Obj **list) {
    (void)path;
    (void)list;
    return attributes;
}

static int tree_get(Tcl_Interp *interp, int index, Tcl_Obj *path, Tcl_Obj **value) {
    struct vfscale_stat st;

    (void)interp;
    (void)index;
    if (told(vfscale_stat(suite_task, path_of(path), &st)) < 0)
        return TCL_ERROR;
    *value = Tcl_ObjPrintf("%05o", st.st_mode & 07777);
    return TCL_OK;
}

/* Understands numbers, text such as rw-r--r--, and u+w, which Tcl gives before it overwrites. */
static int tree_set(Tcl_Interp *interp, int index, Tcl_Obj *path, Tcl_Obj *value) {
    const char *text = Tcl_GetString(value);
    struct vfscale_stat st;
    char *end;
    mode_t mode = (mode_t)strtoul(text + (strncmp(text, "0o", 2) == 0 ? 2 : 0), &end, 8);

    (void)interp;
    (void)index;
    if (told(vfscale_stat(suite_task, path_of(path), &st)) < 0)
        return TCL_ERROR;
    if (strcmp(text, "u+w") == 0)
        mode = (st.st_mode & 07777) | S_IWUSR;
    else if (*end != 0)
        for (mode = 0; *text != 0; text++)
            mode = mode << 1 | (*text != '-');
    return told(vfscale_chmod(suite_task, path_of(path), mode)) < 0 ? TCL_ERROR : TCL_OK;
}

static int tree_mkdir(Tcl_Obj *path) {
    return told(vfscale_mkdir(suite_task, path_of(path), 0777));
}

static int tree_rmdir(Tcl_Obj *path, int recursive, Tcl_Obj **error) {
    int result = recursive ? vfscale_remove_all(suite_task, path_of(path))
                           : vfscale_rmdir(suite_task, path_of(path));
    if (told(result) == 0)
        return TCL_OK;
    *error = path;
    Tcl_IncrRefCount(path);
    return TCL_ERROR;
}

static int tree_delete(Tcl_Obj *path) {
    return told(vfscale_unlink(suite_task, path_of(path)));
}

static int tree_rename(Tcl_Obj *from, Tcl_Obj *to) {
    return told(vfscale_rename(suite_task, path_of(from), path_of(to)));
}

static int tree_chdir(Tcl_Obj *path) {
    return told(vfscale_chdir(suite_task, path_of(path)));
}

static const Tcl_Filesystem file_system = {
    .typeName = "vfscale",
    .structureLength = sizeof(Tcl_Filesystem),
    .version = TCL_FILESYSTEM_VERSION_1,
    .pathInFilesystemProc = is_ours,
    .statProc = tree_stat,
    .lstatProc = tree_lstat,
    .accessProc = tree_access,
    .openFileChannelProc = tree_open,
    .matchInDirectoryProc = tree_match,
    .utimeProc = tree_utime,
    .linkProc = tree_link,
    .fileAttrStringsProc = tree_attributes,
    .fileAttrsGetProc = tree_get,
    .fileAttrsSetProc = tree_set,
    .createDirectoryProc = tree_mkdir,
    .removeDirectoryProc = tree_rmdir,
    .deleteFileProc = tree_delete,
    .renameFileProc = tree_rename,
    .chdirProc = tree_chdir,
};

void suite_register_tcl(void) { Tcl_FSRegister(NULL, &file_system); }
