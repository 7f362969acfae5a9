/* What targets.Stressed needs: arrays that may not move, a profiler, and classes that are replaced. */
#include <dlfcn.h>
#include <errno.h>
#include <jni.h>
#include <jvmti.h>
#include <signal.h>
#include <sys/time.h>

#define DEPTH 64
/* What the VM says in place of a line for a native method. */
#define IN_A_NATIVE (-3)

static jlong usual, critical;

static jint sum_of(const jint *numbers, jint length) {
    /* Overflows as Java's integers do. */
    unsigned sum = 0;
    for (jint i = 0; i < length; i++) {
        sum += (unsigned)numbers[i];
    }
    return (jint)sum;
}

static jint pinned_sum(JNIEnv *env, jintArray array) {
    jint length = (*env)->GetArrayLength(env, array);
    jint *numbers = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
    if (numbers == NULL) {
        return 0;
    }
    jint sum = sum_of(numbers, length);
    (*env)->ReleasePrimitiveArrayCritical(env, array, numbers, JNI_ABORT);
    return sum;
}

JNIEXPORT jint JNICALL Java_targets_Stressed_pinned(JNIEnv *env, jclass owner, jintArray array) {
    (void)owner;
    return pinned_sum(env, array);
}

JNIEXPORT jint JNICALL Java_targets_Stressed_swift(JNIEnv *env, jclass owner, jintArray array) {
    (void)owner;
    __atomic_fetch_add(&usual, 1, __ATOMIC_RELAXED);
    return pinned_sum(env, array);
}

/* What compiled code calls instead with -XX:+CriticalJNINatives: without environment, and with the array's content. */
JNIEXPORT jint JNICALL JavaCritical_targets_Stressed_swift(jint length, jint *numbers) {
    __atomic_fetch_add(&critical, 1, __ATOMIC_RELAXED);
    return sum_of(numbers, length);
}

static jlongArray numbers_of(JNIEnv *env, const jlong *numbers, jsize count) {
    jlongArray array = (*env)->NewLongArray(env, count);
    if (array != NULL) {
        (*env)->SetLongArrayRegion(env, array, 0, count, numbers);
    }
    return array;
}

JNIEXPORT jlongArray JNICALL Java_targets_Stressed_ways(JNIEnv *env, jclass owner) {
    (void)owner;
    jlong ways[] = {usual, critical};
    return numbers_of(env, ways, 2);
}

/* The VM's interface for profilers, which no header declares. */
struct frame {
    jint line;
    jmethodID method;
};
struct trace {
    JNIEnv *env;
    jint count;
    struct frame *frames;
};
static void (*get_trace)(struct trace *, jint, void *);

/* A handler may not ask the VM which thread it is on: that can allocate. Nor may this be made when it is first read. */
static __thread JNIEnv *own_env __attribute__((tls_model("initial-exec")));
static jlong ticks, stacks, in_natives;

static void on_tick(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    int error = errno;
    __atomic_fetch_add(&ticks, 1, __ATOMIC_RELAXED);
    if (own_env != NULL) {
        struct frame frames[DEPTH];
        struct trace trace = {own_env, 0, frames};
        get_trace(&trace, DEPTH, context);
        if (trace.count > 0) {
            __atomic_fetch_add(&stacks, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&in_natives, frames[0].line == IN_A_NATIVE, __ATOMIC_RELAXED);
        }
    }
    errno = error;
}

static void JNICALL on_thread_start(jvmtiEnv *tools, JNIEnv *env, jthread thread) {
    (void)tools, (void)thread;
    own_env = env;
}

static void JNICALL on_thread_end(jvmtiEnv *tools, JNIEnv *env, jthread thread) {
    (void)tools, (void)env, (void)thread;
    own_env = NULL;
}

/* Without this event the VM gives no stacks. */
static void JNICALL on_class_load(jvmtiEnv *tools, JNIEnv *env, jthread thread, jclass type) {
    (void)tools, (void)env, (void)thread, (void)type;
}

static jint make_tools(JNIEnv *env, jvmtiEnv **tools) {
    JavaVM *vm;
    jint error = (*env)->GetJavaVM(env, &vm);
    return error != 0 ? error : (*vm)->GetEnv(vm, (void **)tools, JVMTI_VERSION_1_2);
}

static jint follow_threads(JNIEnv *env) {
    jvmtiEnv *tools;
    jint error = make_tools(env, &tools);
    if (error != 0) {
        return error;
    }
    jvmtiEventCallbacks callbacks = {
        .ThreadStart = on_thread_start, .ThreadEnd = on_thread_end, .ClassLoad = on_class_load};
    error = (jint)(*tools)->SetEventCallbacks(tools, &callbacks, sizeof callbacks);
    jvmtiEvent events[] = {JVMTI_EVENT_THREAD_START, JVMTI_EVENT_THREAD_END, JVMTI_EVENT_CLASS_LOAD};
    for (int i = 0; i < 3 && error == 0; i++) {
        error = (jint)(*tools)->SetEventNotificationMode(tools, JVMTI_ENABLE, events[i], NULL);
    }
    return error;
}

JNIEXPORT jint JNICALL Java_targets_Stressed_profile(JNIEnv *env, jclass owner, jint microseconds) {
    (void)owner;
    if (get_trace == NULL) {
        *(void **)&get_trace = dlsym(RTLD_DEFAULT, "AsyncGetCallTrace");
        jint error = get_trace == NULL ? -1 : follow_threads(env);
        if (error != 0) {
            return error;
        }
        struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigaction(SIGPROF, &action, NULL);
    }
    struct itimerval period = {.it_interval.tv_usec = microseconds, .it_value.tv_usec = microseconds};
    return setitimer(ITIMER_PROF, &period, NULL);
}

JNIEXPORT jlongArray JNICALL Java_targets_Stressed_samples(JNIEnv *env, jclass owner) {
    (void)owner;
    jlong samples[] = {ticks, stacks, in_natives};
    return numbers_of(env, samples, 3);
}

JNIEXPORT jint JNICALL Java_targets_Stressed_redefine(JNIEnv *env, jclass owner, jclass type, jbyteArray bytes) {
    (void)owner;
    jvmtiEnv *tools;
    jint error = make_tools(env, &tools);
    if (error != 0) {
        return error;
    }
    jvmtiCapabilities wanted = {.can_redefine_classes = 1, .can_retransform_classes = 1};
    error = (jint)(*tools)->AddCapabilities(tools, &wanted);
    if (error == 0 && bytes == NULL) {
        error = (jint)(*tools)->RetransformClasses(tools, 1, &type);
    } else if (error == 0) {
        jbyte *content = (*env)->GetByteArrayElements(env, bytes, NULL);
        jvmtiClassDefinition definition = {type, (*env)->GetArrayLength(env, bytes), (unsigned char *)content};
        error = content == NULL ? -1 : (jint)(*tools)->RedefineClasses(tools, 1, &definition);
        if (content != NULL) {
            (*env)->ReleaseByteArrayElements(env, bytes, content, JNI_ABORT);
        }
    }
    (*tools)->DisposeEnvironment(tools);
    return error;
}
