/* Natives that count their calls in a file, so that the counts outlive the process, however it ends. */
#include <fcntl.h>
#include <jni.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the order in which soak/jvm.rs reads them. */
enum { PLAIN, SUM, MIXED, SAME, MANY, OWN, NATIVES };

static _Atomic uint64_t *calls;

static void called(int native) {
    atomic_fetch_add_explicit(&calls[native], 1, memory_order_relaxed);
}

static void fail(JNIEnv *env, const char *what) {
    (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), what);
}

JNIEXPORT void JNICALL Java_targets_Soaked_countIn(JNIEnv *env, jclass owner, jstring file) {
    const char *path = (*env)->GetStringUTFChars(env, file, NULL);
    size_t size = NATIVES * sizeof *calls;
    (void)owner;
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    (*env)->ReleaseStringUTFChars(env, file, path);
    void *mapped = MAP_FAILED;
    if (descriptor >= 0 && ftruncate(descriptor, (off_t)size) == 0)
        mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
        fail(env, "no file to count in");
        return;
    }
    close(descriptor);
    calls = mapped;
}

/* A program that ends when its standard input does. */
JNIEXPORT void JNICALL Java_targets_Soaked_become(JNIEnv *env, jclass owner) {
    (void)owner;
    execlp("cat", "cat", (char *)NULL);
    fail(env, "the program could not be executed");
}

JNIEXPORT void JNICALL Java_targets_Soaked_plain(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    called(PLAIN);
}

JNIEXPORT jint JNICALL Java_targets_Soaked_sum(JNIEnv *env, jclass owner, jint a, jint b) {
    (void)env, (void)owner;
    called(SUM);
    return a + b;
}

JNIEXPORT jdouble JNICALL Java_targets_Soaked_mixed(JNIEnv *env, jclass owner, jlong a, jdouble b, jint c, jfloat d) {
    (void)env, (void)owner;
    called(MIXED);
    return (jdouble)a + b + c + d;
}

JNIEXPORT jobject JNICALL Java_targets_Soaked_same(JNIEnv *env, jclass owner, jobject object) {
    (void)env, (void)owner;
    called(SAME);
    return object;
}

JNIEXPORT jlong JNICALL Java_targets_Soaked_many(JNIEnv *env, jclass owner, jlong a, jlong b, jlong c, jlong d, jlong e,
                                                 jlong f, jlong g, jlong h) {
    (void)env, (void)owner;
    called(MANY);
    return a + b + c + d + e + f + g + h;
}

JNIEXPORT jint JNICALL Java_targets_Soaked_own(JNIEnv *env, jobject self, jint a) {
    (void)env, (void)self;
    called(OWN);
    return a + 1;
}
