/* Natives of targets.Asking: each asks the VM for what its declaration says, and for nothing else. */
#define _GNU_SOURCE
#include <jni.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_targets_Asking_##name

static JavaVM *vm;
static jclass failure;
static jmethodID back;
static jmethodID failing;
static jmethodID member;
static jmethodID twice;
static jmethodID twice_long;
static jmethodID constructor;
static jmethodID again;
static jmethodID nested;
static jmethodID staying;
static jfieldID kept_field;
static jfieldID field;

/* What is looked up here is found before anything is traced. */
JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *loader, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    vm = loader;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK) {
        return JNI_ERR;
    }
    failure = (*env)->NewGlobalRef(env, (*env)->FindClass(env, "java/lang/IllegalStateException"));
    jclass asking = (*env)->FindClass(env, "targets/Asking");
    back = (*env)->GetStaticMethodID(env, asking, "back", "()V");
    failing = (*env)->GetStaticMethodID(env, asking, "failing", "()V");
    member = (*env)->GetMethodID(env, asking, "member", "()I");
    twice = (*env)->GetStaticMethodID(env, asking, "twice", "(I)I");
    twice_long = (*env)->GetStaticMethodID(env, asking, "twice", "(J)J");
    constructor = (*env)->GetMethodID(env, asking, "<init>", "()V");
    field = (*env)->GetFieldID(env, asking, "field", "I");
    staying = (*env)->GetStaticMethodID(env, asking, "staying", "()V");
    nested = (*env)->GetStaticMethodID(env, asking, "nested", "()V");
    again = (*env)->GetStaticMethodID(env, asking, "again", "()Ljava/lang/Object;");
    kept_field = (*env)->GetStaticFieldID(env, asking, "KEPT", "Ljava/lang/Object;");
    return failure == NULL || failing == NULL || (*env)->ExceptionCheck(env) ? JNI_ERR : JNI_VERSION_1_8;
}

/* From a buffer on the stack, as many libraries do it: the address of a name says nothing. */
static void members(JNIEnv *env, jclass class) {
    char name[16], other[16];
    strcpy(name, "member");
    if ((*env)->GetMethodID(env, class, name, "()I") == NULL) {
        abort();
    }
    strcpy(name, "back");
    strcpy(other, "number");
    if ((*env)->GetStaticMethodID(env, class, name, "()V") == NULL ||
        (*env)->GetStaticFieldID(env, class, other, "I") == NULL) {
        abort();
    }
    strcpy(other, "field");
    if ((*env)->GetFieldID(env, class, other, "I") == NULL) {
        abort();
    }
}

NATIVE(void, lookUp)(JNIEnv *env, jclass class) {
    members(env, class);
    (*env)->DeleteLocalRef(env, (*env)->FindClass(env, "java/lang/String"));
    if ((*env)->GetMethodID(env, class, "missing", "()V") != NULL) {
        abort();
    }
    (*env)->ExceptionClear(env);
}

NATIVE(void, lookUpIn)(JNIEnv *env, jclass class, jclass other) {
    (void)class;
    members(env, other);
}

/* Looks a class and a method up by names on pages that nobody has touched before the VM does. */
NATIVE(void, lookUpUntouched)(JNIEnv *env, jclass class) {
    static const char *const TEXTS[] = {"java/lang/String", "member", "()I"};
    enum { PAGE = 4096, PAGES = 3 };
    int file = memfd_create("names", 0);
    for (int i = 0; i < PAGES; i++) {
        if (pwrite(file, TEXTS[i], strlen(TEXTS[i]) + 1, (off_t)i * PAGE) < 0) {
            abort();
        }
    }
    const char *pages[PAGES];
    for (int i = 0; i < PAGES; i++) {
        pages[i] = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, (off_t)i * PAGE);
        if (pages[i] == MAP_FAILED) {
            abort();
        }
    }
    jclass found = (*env)->FindClass(env, pages[0]);
    if (found == NULL || (*env)->GetMethodID(env, class, pages[1], pages[2]) == NULL) {
        abort();
    }
    (*env)->DeleteLocalRef(env, found);
    for (int i = 0; i < PAGES; i++) {
        munmap((void *)pages[i], PAGE);
    }
    close(file);
}

NATIVE(void, refer)(JNIEnv *env, jclass class, jstring text, jintArray array, jint made, jint kept) {
    for (jint i = 0; i < made; i++) {
        jobject local = (*env)->NewLocalRef(env, text);
        jobject global = (*env)->NewGlobalRef(env, local);
        jweak weak = (*env)->NewWeakGlobalRef(env, local);
        const char *chars = (*env)->GetStringUTFChars(env, text, NULL);
        jint *elements = (*env)->GetIntArrayElements(env, array, NULL);
        (*env)->DeleteLocalRef(env, local);
        (*env)->ReleaseIntArrayElements(env, array, elements, JNI_COMMIT);
        if (i < kept) {
            continue;
        }
        (*env)->DeleteGlobalRef(env, global);
        (*env)->DeleteWeakGlobalRef(env, weak);
        (*env)->ReleaseStringUTFChars(env, text, chars);
        (*env)->ReleaseIntArrayElements(env, array, elements, 0);
    }
    (*env)->DeleteGlobalRef(env, NULL);
    (void)class;
}

/* Elements of an array without any are nothing; those of null characters are not given. */
NATIVE(void, leak)(JNIEnv *env, jclass class, jobject object, jstring text, jintArray array, jint made, jint kept) {
    jintArray none = (*env)->NewIntArray(env, 0);
    for (jint i = 0; i < made; i++) {
        jobject global = (*env)->NewGlobalRef(env, object);
        jweak weak = (*env)->NewWeakGlobalRef(env, object);
        const char *chars = (*env)->GetStringUTFChars(env, text, NULL);
        jint *elements = (*env)->GetIntArrayElements(env, array, NULL);
        jint *nothing = (*env)->GetIntArrayElements(env, none, NULL);
        (*env)->ReleaseIntArrayElements(env, array, elements, JNI_COMMIT);
        (*env)->ReleaseIntArrayElements(env, none, nothing, 0);
        if (i >= 20 * kept) {
            (*env)->DeleteGlobalRef(env, global);
        }
        if (i >= 10 * kept) {
            (*env)->DeleteWeakGlobalRef(env, weak);
        }
        if (i >= 40 * kept) {
            (*env)->ReleaseStringUTFChars(env, text, chars);
        }
        if (i >= 8 * kept) {
            (*env)->ReleaseIntArrayElements(env, array, elements, 0);
        }
        void *outer = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
        void *inner = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
        (*env)->ReleasePrimitiveArrayCritical(env, array, inner, JNI_ABORT);
        (*env)->ReleasePrimitiveArrayCritical(env, array, outer, 0);
    }
    if ((*env)->NewGlobalRef(env, NULL) != NULL) {
        abort();
    }
    (*env)->DeleteGlobalRef(env, NULL);
    (*env)->DeleteWeakGlobalRef(env, NULL);
    (*env)->DeleteLocalRef(env, none);
    (void)class;
}

/* One of each is made by one call, and let go by the next. */
NATIVE(void, keep)(JNIEnv *env, jclass class, jobject object) {
    static jobject kept;
    (void)class;
    if (kept == NULL) {
        kept = (*env)->NewGlobalRef(env, object);
        return;
    }
    (*env)->DeleteGlobalRef(env, kept);
    kept = NULL;
}

static void make(JNIEnv *env, jobject object, int references) {
    for (int i = 0; i < references; i++) {
        if ((*env)->NewLocalRef(env, object) == NULL) {
            abort();
        }
    }
}

/* One reference by each of 17 functions. */
static void make_by_each(JNIEnv *env, jclass class) {
    static char memory[1];
    static const jchar letter = 'a';
    jobject parent = (*env)->GetSuperclass(env, class);
    jobjectArray array = (*env)->NewObjectArray(env, 1, parent, class);
    jobject first = (*env)->GetObjectArrayElement(env, array, 0);
    if ((*env)->ExceptionCheck(env)) {
        return;
    }
    (*env)->GetObjectClass(env, first);
    (*env)->FindClass(env, "java/lang/String");
    (*env)->ToReflectedMethod(env, class, back, JNI_TRUE);
    (*env)->ToReflectedField(env, class, kept_field, JNI_TRUE);
    (*env)->GetStaticObjectField(env, class, kept_field);
    (*env)->CallStaticObjectMethod(env, class, again);
    if ((*env)->ExceptionCheck(env)) {
        return;
    }
    (*env)->AllocObject(env, class);
    (*env)->NewObject(env, class, constructor);
    (*env)->NewStringUTF(env, "text");
    (*env)->NewString(env, &letter, 1);
    (*env)->NewIntArray(env, 1);
    (*env)->NewDirectByteBuffer(env, memory, 1);
    (*env)->NewLocalRef(env, first);
    (*env)->ThrowNew(env, failure, "thrown");
    (*env)->ExceptionOccurred(env);
    (*env)->ExceptionClear(env);
}

NATIVE(void, beyond)(JNIEnv *env, jclass class, jobject object, jint kind, jint held) {
    switch (kind) {
        case 0:
            make(env, object, held);
            break;
        case 1:
            make(env, object, 5);
            (*env)->EnsureLocalCapacity(env, held - 6);
            make(env, object, held - 5);
            break;
        case 2:
            (*env)->PushLocalFrame(env, held - 1);
            make(env, object, held);
            (*env)->PopLocalFrame(env, NULL);
            break;
        case 3:
            /* It was not made here. */
            (*env)->DeleteLocalRef(env, object);
            make(env, class, 17);
            break;
        default:
            make_by_each(env, class);
    }
}

NATIVE(void, within)(JNIEnv *env, jclass class, jobject object, jint kind, jint held) {
    switch (kind) {
        case 0:
            (*env)->EnsureLocalCapacity(env, held);
            make(env, object, held);
            break;
        case 1:
            (*env)->PushLocalFrame(env, held);
            make(env, object, held);
            /* What this gives is in the frame that was before. */
            (*env)->PopLocalFrame(env, object);
            make(env, object, 15);
            break;
        case 2:
            for (jint i = 0; i < held; i++) {
                (*env)->DeleteLocalRef(env, (*env)->NewLocalRef(env, object));
            }
            break;
        case 3: {
            jobject first = (*env)->NewLocalRef(env, object);
            make(env, object, 15);
            (*env)->PushLocalFrame(env, 2);
            make(env, object, 2);
            (*env)->DeleteLocalRef(env, first);
            (*env)->PopLocalFrame(env, NULL);
            make(env, object, 1);
            break;
        }
        default:
            make(env, object, 16);
            if (held > 0) {
                (*env)->CallStaticVoidMethod(env, class, nested);
                /* Who does not look is warned of by the VM that checks. */
                if ((*env)->ExceptionCheck(env)) {
                    return;
                }
            }
    }
}

NATIVE(void, stay)(JNIEnv *env, jclass class, jobject object, jint held) {
    make(env, object, held);
    (*env)->CallStaticVoidMethod(env, class, staying);
    while (!(*env)->ExceptionCheck(env)) {
        pause();
    }
}

NATIVE(void, fail)(JNIEnv *env, jclass class, jint cleared, jboolean leaves) {
    (void)class;
    for (jint i = 0; i < cleared; i++) {
        (*env)->ThrowNew(env, failure, "cleared");
        (*env)->ExceptionClear(env);
    }
    /* There is nothing to be cleared any more. */
    (*env)->ExceptionClear(env);
    if (leaves) {
        (*env)->ThrowNew(env, failure, "left");
    }
}

/* Buffers of one byte, of two, and so on. */
NATIVE(void, buffers)(JNIEnv *env, jclass class, jint made) {
    static char memory[1 << 16];
    (void)class;
    for (jint i = 1; i <= made; i++) {
        jobject buffer = (*env)->NewDirectByteBuffer(env, memory, i);
        if (buffer == NULL) {
            abort();
        }
        (*env)->DeleteLocalRef(env, buffer);
    }
}

/* The VM throws, what Java throws is passed on, or the native throws itself. */
NATIVE(void, raise)(JNIEnv *env, jclass class, jint kind, jboolean clears) {
    if (kind == 0) {
        (*env)->GetMethodID(env, class, "missing", "()V");
    } else if (kind == 1) {
        (*env)->CallStaticVoidMethod(env, class, failing);
    } else {
        (*env)->ThrowNew(env, failure, "raised");
    }
    if (clears) {
        (*env)->ExceptionClear(env);
    }
}

NATIVE(void, hold)(JNIEnv *env, jclass class, jintArray array, jint milliseconds) {
    (void)class;
    void *outer = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
    void *inner = (*env)->GetPrimitiveArrayCritical(env, array, NULL);
    (*env)->ReleasePrimitiveArrayCritical(env, array, inner, JNI_ABORT);
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&rest, NULL);
    (*env)->ReleasePrimitiveArrayCritical(env, array, outer, 0);
}

static void versions(JNIEnv *env, int times) {
    for (int i = 0; i < times; i++) {
        (*env)->GetVersion(env);
    }
}

NATIVE(void, call)(JNIEnv *env, jclass class) {
    (*env)->CallStaticVoidMethod(env, class, back);
    /* Who does not look is warned of by the VM that checks. */
    if ((*env)->ExceptionCheck(env)) {
        return;
    }
    versions(env, 2);
}

static jint by_list(JNIEnv *env, jobject object, jmethodID method, ...) {
    va_list arguments;
    va_start(arguments, method);
    jint result = (*env)->CallIntMethodV(env, object, method, arguments);
    va_end(arguments);
    return result;
}

NATIVE(void, callEach)(JNIEnv *env, jobject object, jint times) {
    jclass class = (*env)->GetObjectClass(env, object);
    jvalue one = {.j = 1};
    for (jint i = 0; i < times; i++) {
        (*env)->CallIntMethod(env, object, member);
        by_list(env, object, member);
        (*env)->CallIntMethodA(env, object, member, NULL);
        (*env)->CallNonvirtualIntMethod(env, object, class, member);
        (*env)->CallStaticIntMethod(env, class, twice, 1);
        (*env)->CallStaticLongMethodA(env, class, twice_long, &one);
        (*env)->DeleteLocalRef(env, (*env)->NewObject(env, class, constructor));
    }
}

NATIVE(void, callBackOf)(JNIEnv *env, jclass class, jclass type) {
    (void)class;
    (*env)->CallStaticVoidMethod(env, type, (*env)->GetStaticMethodID(env, type, "back", "()V"));
}

NATIVE(void, leaf)(JNIEnv *env, jclass class) {
    (void)class;
    versions(env, 3);
}

static void *attached(void *times) {
    JNIEnv *env;
    if ((*vm)->AttachCurrentThreadAsDaemon(vm, (void **)&env, NULL) != JNI_OK) {
        abort();
    }
    versions(env, *(jint *)times);
    (*vm)->DetachCurrentThread(vm);
    return NULL;
}

NATIVE(void, outside)(JNIEnv *env, jclass class, jint times) {
    pthread_t thread;
    (void)env, (void)class;
    if (pthread_create(&thread, NULL, attached, &times) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
}

NATIVE(jint, read)(JNIEnv *env, jobject object, jint times) {
    jint sum = 0;
    for (jint i = 0; i < times; i++) {
        sum += (*env)->GetIntField(env, object, field);
    }
    return sum;
}
