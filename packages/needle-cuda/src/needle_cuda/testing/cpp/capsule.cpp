// The destructor of a DLPack capsule. It may run while an exception is under way, which Python code must not see: it is put
// aside and comes back. The two functions are those of the Python that loads this library.
namespace {
typedef void (*Destructor)(void* capsule);
Destructor destroy = nullptr;
}  // namespace

extern "C" {
void PyErr_Fetch(void** type, void** value, void** traceback);
void PyErr_Restore(void* type, void* value, void* traceback);

void emulator_set_capsule_destructor(Destructor given) {
    destroy = given;
}

void emulator_destroy_capsule(void* capsule) {
    void *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (destroy) destroy(capsule);
    PyErr_Restore(type, value, traceback);
}
}
