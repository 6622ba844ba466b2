/* The methods of an open database, journal or WAL. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "file.h"
#include "super.h"

/* The bytes whose locks are the levels of SQLite, as in each of its file systems. */
#define PENDING_BYTE 0x40000000
#define RESERVED_BYTE (PENDING_BYTE + 1)
#define SHARED_FIRST (PENDING_BYTE + 2)
#define SHARED_SIZE 510

static struct file *of(sqlite3_file *file) { return (struct file *)file; }

static int io(int64_t result, int code) {
    if (result >= 0)
        return SQLITE_OK;
    if (result == -ENOSPC || result == -EDQUOT)
        return SQLITE_FULL;
    sqlite3_log(code, "%s", vfscale_error());
    return code;
}

static int file_read(sqlite3_file *file, void *buf, int count, sqlite3_int64 offset) {
    char *at = buf;

    if ((of(file)->flags & SQLITE_OPEN_MAIN_JOURNAL) && of(file)->tree->place != NULL)
        super_journal_read(of(file)->tree);
    while (count > 0) {
        ssize_t got = vfscale_pread(of(file)->tree->task, of(file)->fd, at, (size_t)count, offset);
        if (got < 0)
            return io(got, SQLITE_IOERR_READ);
        if (got == 0) {
            memset(at, 0, (size_t)count);
            return SQLITE_IOERR_SHORT_READ;
        }
        at += got;
        offset += got;
        count -= (int)got;
    }
    return SQLITE_OK;
}

static int file_write(sqlite3_file *file, const void *buf, int count, sqlite3_int64 offset) {
    const char *at = buf;
    while (count > 0) {
        ssize_t put = vfscale_pwrite(of(file)->tree->task, of(file)->fd, at, (size_t)count, offset);
        if (put <= 0)
            return put == 0 ? SQLITE_FULL : io(put, SQLITE_IOERR_WRITE);
        at += put;
        offset += put;
        count -= (int)put;
    }
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size) {
    return io(vfscale_ftruncate(of(file)->tree->task, of(file)->fd, size), SQLITE_IOERR_TRUNCATE);
}

/* The first sync of a file makes its name durable as well, which fdatasync does not promise. */
static int file_sync(sqlite3_file *file, int flags) {
    struct file *f = of(file);
    int is_named = f->is_named;
    int result = is_named && (flags & SQLITE_SYNC_DATAONLY)
                     ? vfscale_fdatasync(f->tree->task, f->fd)
                     : vfscale_fsync(f->tree->task, f->fd);
    f->is_named = is_named || result == 0;
    return io(result, SQLITE_IOERR_FSYNC);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size) {
    struct vfscale_stat st;
    int result = vfscale_fstat(of(file)->tree->task, of(file)->fd, &st);
    if (result == 0)
        *size = (sqlite3_int64)st.st_size;
    return io(result, SQLITE_IOERR_FSTAT);
}

/* Takes or releases the lock of the open file on a range. */
static int range(struct file *file, int type, int64_t start, int64_t length) {
    struct vfscale_flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    int result = vfscale_fcntl_lock(file->tree->task, file->fd, F_OFD_SETLK, &lock, NULL);
    if (result == -EAGAIN || result == -EACCES)
        return SQLITE_BUSY;
    return io(result, type == F_UNLCK ? SQLITE_IOERR_UNLOCK : SQLITE_IOERR_LOCK);
}

static int shared(struct file *file) {
    int result = range(file, F_RDLCK, PENDING_BYTE, 1), last;
    if (result != SQLITE_OK)
        return result;
    result = range(file, F_RDLCK, SHARED_FIRST, SHARED_SIZE);
    last = range(file, F_UNLCK, PENDING_BYTE, 1);
    return result != SQLITE_OK ? result : last;
}

static int file_lock(sqlite3_file *sqlite, int level) {
    struct file *file = of(sqlite);
    int result = SQLITE_OK;

    if (file->level >= level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED) {
        result = shared(file);
    } else if (level == SQLITE_LOCK_RESERVED) {
        result = range(file, F_WRLCK, RESERVED_BYTE, 1);
    } else {
        if (file->level < SQLITE_LOCK_PENDING) {
            result = range(file, F_WRLCK, PENDING_BYTE, 1);
            if (result == SQLITE_OK)
                file->level = SQLITE_LOCK_PENDING;
        }
        if (result == SQLITE_OK && level == SQLITE_LOCK_EXCLUSIVE)
            result = range(file, F_WRLCK, SHARED_FIRST, SHARED_SIZE);
    }
    if (result == SQLITE_OK)
        file->level = level;
    return result;
}

static int file_unlock(sqlite3_file *sqlite, int level) {
    struct file *file = of(sqlite);
    int result = SQLITE_OK;

    if (file->level <= level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED) {
        result = range(file, F_RDLCK, SHARED_FIRST, SHARED_SIZE);
        if (result == SQLITE_OK)
            result = range(file, F_UNLCK, PENDING_BYTE, 2);
    } else {
        result = range(file, F_UNLCK, PENDING_BYTE, 2 + SHARED_SIZE);
    }
    if (result == SQLITE_OK)
        file->level = level;
    return result;
}

static int file_is_reserved(sqlite3_file *sqlite, int *is_reserved) {
    struct file *file = of(sqlite);
    struct vfscale_flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RESERVED_BYTE, .l_len = 1};
    int result;

    *is_reserved = file->level >= SQLITE_LOCK_RESERVED;
    if (*is_reserved)
        return SQLITE_OK;
    result = vfscale_fcntl_lock(file->tree->task, file->fd, F_OFD_GETLK, &lock, NULL);
    *is_reserved = result == 0 && lock.l_type != F_UNLCK;
    return io(result, SQLITE_IOERR_CHECKRESERVEDLOCK);
}

/* Sets a property to 0 or 1, or with a negative number stores it there. */
static int property(int *property, int *arg) {
    if (*arg < 0)
        *arg = *property;
    else
        *property = *arg != 0;
    return SQLITE_OK;
}

/* Returns whether its name leads to another file, or nowhere. */
static int has_moved(struct file *file) {
    struct vfscale_stat named, open;
    return vfscale_stat(file->tree->task, file->path, &named) < 0 ||
           vfscale_fstat(file->tree->task, file->fd, &open) < 0 || named.st_ino != open.st_ino ||
           named.st_dev != open.st_dev;
}

static int file_control(sqlite3_file *sqlite, int op, void *arg) {
    struct file *file = of(sqlite);

    switch (op) {
    case SQLITE_FCNTL_VFSNAME:
        *(char **)arg = sqlite3_mprintf("%s", file->vfs_name);
        return SQLITE_OK;
    case SQLITE_FCNTL_LOCKSTATE:
        *(int *)arg = file->level;
        return SQLITE_OK;
    case SQLITE_FCNTL_PERSIST_WAL:
        return property(&file->keeps_wal, arg);
    case SQLITE_FCNTL_POWERSAFE_OVERWRITE:
        return property(&file->is_powersafe, arg);
    case SQLITE_FCNTL_HAS_MOVED:
        *(int *)arg = has_moved(file);
        return SQLITE_OK;
    default:
        return SQLITE_NOTFOUND;
    }
}

static int file_sector_size(sqlite3_file *file) {
    (void)file;
    return 4096;
}

static int file_characteristics(sqlite3_file *file) {
    return of(file)->is_powersafe ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}

/* Returns the WAL index of a database, with a use, making it if there is none. */
static int shm_get(struct file *file) {
    struct vfscale_stat st;
    struct shm *shm;
    int result = vfscale_fstat(file->tree->task, file->fd, &st);

    if (result < 0)
        return io(result, SQLITE_IOERR_SHMOPEN);
    for (shm = file->tree->shms; shm != NULL; shm = shm->next)
        if (shm->dev == st.st_dev && shm->ino == st.st_ino)
            break;
    if (shm == NULL) {
        shm = calloc(1, sizeof *shm);
        if (shm == NULL)
            return SQLITE_NOMEM;
        shm->dev = st.st_dev;
        shm->ino = st.st_ino;
        pthread_mutex_init(&shm->mutex, NULL);
        shm->next = file->tree->shms;
        file->tree->shms = shm;
    }
    shm->users++;
    file->shm = shm;
    return SQLITE_OK;
}

static int shm_map(sqlite3_file *sqlite, int number, int bytes, int extend, void volatile **at) {
    struct file *file = of(sqlite);
    struct shm *shm;
    int result = SQLITE_OK;

    *at = NULL;
    if (file->shm == NULL) {
        trees_lock();
        result = shm_get(file);
        trees_unlock();
    }
    if (result != SQLITE_OK)
        return result;
    shm = file->shm;
    pthread_mutex_lock(&shm->mutex);
    if (number >= shm->regions && extend) {
        void **more = realloc(shm->region, sizeof(void *) * (size_t)(number + 1));
        if (more == NULL)
            result = SQLITE_NOMEM;
        else
            shm->region = more;
        while (result == SQLITE_OK && shm->regions <= number) {
            void *region = calloc(1, (size_t)bytes);
            if (region == NULL)
                result = SQLITE_NOMEM;
            else
                shm->region[shm->regions++] = region;
        }
        shm->region_bytes = bytes;
    }
    if (result == SQLITE_OK && number < shm->regions)
        *at = shm->region[number];
    pthread_mutex_unlock(&shm->mutex);
    return result;
}

static int shm_lock(sqlite3_file *sqlite, int first, int count, int flags) {
    struct file *file = of(sqlite);
    struct shm *shm = file->shm;
    int result = SQLITE_OK, slot;

    if (shm == NULL)
        return SQLITE_IOERR_SHMLOCK;
    pthread_mutex_lock(&shm->mutex);
    for (slot = first; slot < first + count && (flags & SQLITE_SHM_LOCK); slot++) {
        int mine = (file->shared >> slot & 1) + (file->exclusive >> slot & 1);
        int others = shm->exclusive[slot];
        others |= flags & SQLITE_SHM_EXCLUSIVE ? shm->shared[slot] : 0;
        if (!mine && others)
            result = SQLITE_BUSY;
    }
    for (slot = first; slot < first + count && result == SQLITE_OK; slot++) {
        unsigned bit = 1u << slot, *held;
        int *users;
        held = flags & SQLITE_SHM_SHARED ? &file->shared : &file->exclusive;
        users = flags & SQLITE_SHM_SHARED ? &shm->shared[slot] : &shm->exclusive[slot];
        if (!(flags & SQLITE_SHM_LOCK) == !(*held & bit))
            continue;
        *users += *held & bit ? -1 : 1;
        *held ^= bit;
    }
    pthread_mutex_unlock(&shm->mutex);
    return result;
}

static void shm_barrier(sqlite3_file *file) {
    __sync_synchronize();
    if (of(file)->shm != NULL) {
        pthread_mutex_lock(&of(file)->shm->mutex);
        pthread_mutex_unlock(&of(file)->shm->mutex);
    }
}

static int shm_unmap(sqlite3_file *sqlite, int is_deleted) {
    struct file *file = of(sqlite);
    struct shm *shm = file->shm, **at;

    (void)is_deleted;
    if (shm == NULL)
        return SQLITE_OK;
    shm_lock(sqlite, 0, SQLITE_SHM_NLOCK, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED);
    shm_lock(sqlite, 0, SQLITE_SHM_NLOCK, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
    trees_lock();
    file->shm = NULL;
    if (--shm->users == 0) {
        for (at = &file->tree->shms; *at != shm; at = &(*at)->next)
            ;
        *at = shm->next;
        while (shm->regions > 0)
            free(shm->region[--shm->regions]);
        free(shm->region);
        pthread_mutex_destroy(&shm->mutex);
        free(shm);
    }
    trees_unlock();
    return SQLITE_OK;
}

static int file_close(sqlite3_file *sqlite) {
    struct file *file = of(sqlite);
    int result, last;

    shm_unmap(sqlite, 0);
    if (file->flags & SQLITE_OPEN_SUPER_JOURNAL)
        super_closed(file->path);
    /* The locks of the open file go with it. */
    result = io(vfscale_close(file->tree->task, file->fd), SQLITE_IOERR_CLOSE);
    last = tree_put(file->tree);
    return result != SQLITE_OK ? result : last;
}

const sqlite3_io_methods file_methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_is_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = shm_map,
    .xShmLock = shm_lock,
    .xShmBarrier = shm_barrier,
    .xShmUnmap = shm_unmap,
};
