/* Natives of targets.Faulty: each has the fault that its declaration says, and no other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jni.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_targets_Faulty_##name
/* Has a function begin with an instruction that carries a cheap probe. */
#define PUSHES() __asm__ volatile("" ::: "rbx")
#define LARGE (4 << 20)

static int null;
static char *room;
static jclass failure, faulty;
static jmethodID back;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) {
        return JNI_ERR;
    }
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    room = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    failure = (*env)->NewGlobalRef(env, (*env)->FindClass(env, "java/lang/IllegalStateException"));
    faulty = (*env)->NewGlobalRef(env, (*env)->FindClass(env, "targets/Faulty"));
    back = (*env)->GetStaticMethodID(env, faulty, "back", "()V");
    return null < 0 || room == MAP_FAILED || failure == NULL || back == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

static void rest(jint milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static void put_bytes(const void *bytes, size_t length) {
    if (write(null, bytes, length) != (ssize_t)length) {
        abort();
    }
}

NATIVE(void, nothing)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    PUSHES();
}

NATIVE(jint, stepped)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return 0;
}

NATIVE(void, lookUp)(JNIEnv *env, jclass class, jint times) {
    for (jint i = 0; i < times; i++) {
        if ((*env)->GetStaticMethodID(env, class, "back", "()V") == NULL) {
            abort();
        }
    }
}

NATIVE(void, keep)(JNIEnv *env, jclass class, jobject object, jint times) {
    (void)class;
    for (jint i = 0; i < times; i++) {
        if ((*env)->NewGlobalRef(env, object) == NULL) {
            abort();
        }
    }
}

NATIVE(void, hold)(JNIEnv *env, jclass class, jbyteArray array, jint milliseconds) {
    (void)class;
    void *bytes = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
    rest(milliseconds);
    (*env)->ReleasePrimitiveArrayCritical(env, array, bytes, JNI_ABORT);
}

NATIVE(void, answer)(JNIEnv *env, jclass class, jint milliseconds) {
    (void)env, (void)class;
    PUSHES();
    if (milliseconds > 0) {
        rest(milliseconds);
    }
}

NATIVE(void, copy)(JNIEnv *env, jclass class, jbyteArray array) {
    (void)class;
    PUSHES();
    (*env)->GetByteArrayRegion(env, array, 0, LARGE, (jbyte *)room);
}

NATIVE(void, put)(JNIEnv *env, jclass class, jint value) {
    (void)env, (void)class;
    char byte = (char)value;
    PUSHES();
    put_bytes(&byte, 1);
}

NATIVE(void, parse)(JNIEnv *env, jclass class) {
    (void)class;
    PUSHES();
    (*env)->ThrowNew(env, failure, "no number");
}

NATIVE(void, fill)(JNIEnv *env, jclass class, jint pages) {
    (void)env, (void)class;
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

NATIVE(void, list)(JNIEnv *env, jclass class, jint times) {
    (void)env, (void)class;
    for (jint i = 0; i < times; i++) {
        syscall(SYS_getppid);
    }
}

NATIVE(void, store)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    PUSHES();
    pthread_mutex_lock(&lock);
    rest(1);
    pthread_mutex_unlock(&lock);
}

NATIVE(void, ask)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    PUSHES();
    rest(2);
}

NATIVE(jint, sum)(JNIEnv *env, jclass class, jobject buffer) {
    const jint *numbers = (*env)->GetDirectBufferAddress(env, buffer);
    jint sum = 0;
    for (jlong i = 0; i < 1 << 14; i++) {
        sum += numbers[i];
    }
    (*env)->CallStaticVoidMethod(env, class, back);
    return (*env)->ExceptionCheck(env) ? -1 : sum;
}

NATIVE(void, flush)(JNIEnv *env, jclass class, jbyteArray array) {
    (void)class;
    jsize length = (*env)->GetArrayLength(env, array);
    void *bytes = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
    put_bytes(bytes, (size_t)length);
    (*env)->ReleasePrimitiveArrayCritical(env, array, bytes, JNI_ABORT);
}
