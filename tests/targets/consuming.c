/* Natives of targets.Consuming: each consumes what it is told to. Everything else is made before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jni.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536

static int zero, null;
/* Between two threads, one for each way. */
static int ropes[2][2];
static long switches, ran;
static __thread int sockets[2];
static __thread char *own;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    (void)vm, (void)reserved;
    zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (zero < 0 || null < 0 || pipe2(ropes[0], O_CLOEXEC) != 0 || pipe2(ropes[1], O_CLOEXEC) != 0) {
        return JNI_ERR;
    }
    return JNI_VERSION_1_8;
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

/* Has the thread run on the first of its CPUs alone, so that it and its like run by turns. */
static void share_a_cpu(void) {
    cpu_set_t cpus;
    int first = 0;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) {
        abort();
    }
    while (!CPU_ISSET(first, &cpus)) {
        first++;
    }
    CPU_ZERO(&cpus);
    CPU_SET(first, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
        abort();
    }
}

JNIEXPORT jlong JNICALL Java_targets_Consuming_swap(JNIEnv *env, jclass owner, jboolean begins, jint times) {
    (void)env, (void)owner;
    int to = ropes[begins ? 0 : 1][1], from = ropes[begins ? 1 : 0][0];
    char byte = 0;
    share_a_cpu();
    long before = now(CLOCK_MONOTONIC);
    for (jint i = 0; i < times; i++) {
        if ((begins && write(to, &byte, 1) != 1) || read(from, &byte, 1) != 1 || (!begins && write(to, &byte, 1) != 1)) {
            abort();
        }
    }
    return now(CLOCK_MONOTONIC) - before;
}

/* As many pages, bytes in both directions, and system calls besides the five by which that is done. */
static void consume(jint amount) {
    touch(amount);
    char *buffer = present();
    if (read(zero, buffer, amount) != amount || write(null, buffer, amount) != amount) {
        abort();
    }
    for (jint i = 0; i < amount; i++) {
        syscall(SYS_getppid);
    }
}

/* Nobody wakes who waits here, or has been taken from the first place to the second. */
static int staying, counted;

JNIEXPORT void JNICALL Java_targets_Consuming_stay(JNIEnv *env, jclass owner, jint amount) {
    (void)env, (void)owner;
    if (amount > 0) {
        consume(amount);
        for (;;) {
            syscall(SYS_futex, &staying, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        }
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_awaitStaying(JNIEnv *env, jclass owner, jint threads) {
    (void)env, (void)owner;
    for (long waiting = 0; waiting < threads;) {
        long more = syscall(SYS_futex, &staying, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)INT_MAX, &counted, 0);
        if (more < 0) {
            abort();
        }
        waiting += more;
        nanosleep(&(struct timespec){.tv_nsec = more == 0 ? 1000000 : 0}, NULL);
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_leave(JNIEnv *env, jclass owner, jint amount) {
    (void)env, (void)owner;
    if (amount > 0) {
        consume(amount);
        /* The thread, and by no more than this call. */
        syscall(SYS_exit, 0);
    }
}

JNIEXPORT void JNICALL Java_targets_Consuming_within(JNIEnv *env, jclass owner, jint amount, jboolean leaves) {
    jmethodID inside = (*env)->GetStaticMethodID(env, owner, "inside", "(IZ)V");
    if (amount > 0) {
        touch(amount);
    }
    (*env)->CallStaticVoidMethod(env, owner, inside, amount, leaves);
}

struct mortal {
    JavaVM *vm;
    jclass owner;
    jmethodID entry;
    jint amount;
};

static void *live_and_end(void *argument) {
    struct mortal *self = argument;
    JNIEnv *env;
    if ((*self->vm)->AttachCurrentThreadAsDaemon(self->vm, (void **)&env, NULL) == JNI_OK) {
        (*env)->CallStaticVoidMethod(env, self->owner, self->entry, self->amount, JNI_TRUE);
        (*self->vm)->DetachCurrentThread(self->vm);
    }
    return NULL;
}

/* The VM goes on to list a thread that ends without detaching: its stack is ours and stays mapped, as in shapes_threads.c. */
JNIEXPORT void JNICALL Java_targets_Consuming_spawn(JNIEnv *env, jclass owner, jint amount) {
    size_t size = 1024 * 1024;
    struct mortal mortal = {.amount = amount, .entry = (*env)->GetStaticMethodID(env, owner, "lead", "(IZ)V")};
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    (*env)->GetJavaVM(env, &mortal.vm);
    mortal.owner = (*env)->NewGlobalRef(env, owner);
    pthread_attr_init(&attributes);
    if (stack == MAP_FAILED || mortal.owner == NULL || pthread_attr_setstack(&attributes, stack, size) != 0
        || pthread_create(&thread, &attributes, live_and_end, &mortal) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
    pthread_attr_destroy(&attributes);
    (*env)->DeleteGlobalRef(env, mortal.owner);
}

JNIEXPORT void JNICALL Java_targets_Consuming_outer(JNIEnv *env, jclass owner, jint pages) {
    touch(pages);
    (*env)->CallStaticVoidMethod(env, owner, (*env)->GetStaticMethodID(env, owner, "inner", "(I)V"), pages);
}
