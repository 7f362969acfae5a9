/* Natives of targets.Consuming: each consumes what it is told to. Everything else is made before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jni.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536

static int zero, null;
static long switches, ran;
static __thread int sockets[2];
static __thread char *own;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    (void)vm, (void)reserved;
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return zero < 0 || null < 0 ? JNI_ERR : JNI_VERSION_1_8;
}

/* Memory that is there already: what is done with it makes no fault. */
static char *present(void) {
    if (own == NULL) {
        own = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (own == MAP_FAILED) {
            abort();
        }
    }
    return own;
}

static void touch(jint pages) {
    long size = sysconf(_SC_PAGESIZE);
    char *new = mmap(NULL, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED) {
        abort();
    }
    /* Each page by itself. */
    madvise(new, pages * size, MADV_NOHUGEPAGE);
    for (jint page = 0; page < pages; page++) {
        ((volatile char *)new)[page * size] = 1;
    }
    munmap(new, pages * size);
}

JNIEXPORT void JNICALL Java_targets_Consuming_prepare(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    volatile char deep[MOST];
    for (size_t i = 0; i < sizeof deep; i += 1024) {
        deep[i] = 1;
    }
    present();
}

JNIEXPORT void JNICALL Java_targets_Consuming_touch(JNIEnv *env, jclass owner, jint pages) {
    (void)env, (void)owner;
    touch(pages);
}

JNIEXPORT void JNICALL Java_targets_Consuming_call(JNIEnv *env, jclass owner, jint times) {
    (void)env, (void)owner;
    for (jint i = 0; i < times; i++) {
        syscall(SYS_getppid);
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_copy(JNIEnv *env, jclass owner, jint bytes) {
    (void)env, (void)owner;
    char *buffer = present();
    if (read(zero, buffer, bytes) != bytes || write(null, buffer, bytes) != bytes) {
        abort();
    }
}

JNIEXPORT jint JNICALL Java_targets_Consuming_take(JNIEnv *env, jclass owner, jint bytes) {
    (void)env, (void)owner;
    return (jint)read(zero, present(), bytes);
}

JNIEXPORT void JNICALL Java_targets_Consuming_talk(JNIEnv *env, jclass owner, jint bytes) {
    (void)env, (void)owner;
    char *mine = present();
    if (sockets[0] == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) != 0) {
        abort();
    }
    if (send(sockets[0], mine, bytes, 0) != bytes || recv(sockets[1], mine, bytes, MSG_PEEK) != bytes
        || recv(sockets[1], mine, bytes, 0) != bytes) {
        abort();
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_lock(JNIEnv *env, jclass owner, jint times) {
    (void)env, (void)owner;
    int word = 0;
    for (jint i = 0; i < times; i++) {
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_nap(JNIEnv *env, jclass owner, jint times) {
    (void)env, (void)owner;
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    for (jint i = 0; i < times; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    getrusage(RUSAGE_THREAD, &after);
    __atomic_fetch_add(&switches, after.ru_nvcsw - before.ru_nvcsw, __ATOMIC_RELAXED);
}

static long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

JNIEXPORT void JNICALL Java_targets_Consuming_work(JNIEnv *env, jclass owner, jint milliseconds) {
    (void)env, (void)owner;
    long before = now(CLOCK_THREAD_CPUTIME_ID);
    while (now(CLOCK_THREAD_CPUTIME_ID) - before < milliseconds * 1000000L) {
    }
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
    __atomic_fetch_add(&ran, now(CLOCK_THREAD_CPUTIME_ID) - before, __ATOMIC_RELAXED);
}

JNIEXPORT void JNICALL Java_targets_Consuming_map(JNIEnv *env, jclass owner, jint pages) {
    (void)env, (void)owner;
    size_t size = pages * sysconf(_SC_PAGESIZE);
    char *new = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED || (new = mremap(new, size, 3 * size, MREMAP_MAYMOVE)) == MAP_FAILED) {
        abort();
    }
    munmap(new, 3 * size);
}

/* One of each of the allocator's functions, also where one does its work by another. */
JNIEXPORT void JNICALL Java_targets_Consuming_allocate(JNIEnv *env, jclass owner, jint bytes) {
    (void)env, (void)owner;
    void *volatile made[6] = {malloc(bytes), calloc(2, bytes), realloc(NULL, bytes), NULL, aligned_alloc(64, bytes)};
    made[2] = realloc(made[2], 2 * bytes);
    if (posix_memalign((void **)&made[3], sizeof(void *), bytes) != 0) {
        abort();
    }
    made[5] = malloc(0);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        free(made[i]);
    }
}

JNIEXPORT jlong JNICALL Java_targets_Consuming_workedNs(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    return __atomic_load_n(&ran, __ATOMIC_RELAXED);
}

JNIEXPORT jlong JNICALL Java_targets_Consuming_napSwitches(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    return __atomic_load_n(&switches, __ATOMIC_RELAXED);
}

JNIEXPORT void JNICALL Java_targets_Consuming_outer(JNIEnv *env, jclass owner, jint pages) {
    touch(pages);
    (*env)->CallStaticVoidMethod(env, owner, (*env)->GetStaticMethodID(env, owner, "inner", "(I)V"), pages);
}
