/* Compiles HLSL with DirectX's compilers, with the same options as wgpu, and prints the time of each. No GPU is needed;
 * see run.sh.
 *
 *   compile.exe DIRECTORY
 *
 * DIRECTORY has `kernels.tsv` (file, fxc or dxc, entry point, target, description) and the files it names.
 * d3dcompiler_47.dll and dxcompiler.dll must be in this program's folder. Exits with 1 if a shader is refused. */
#define COBJMACROS
#include <windows.h>

#include <d3dcompiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The needed parts of dxcapi.h, which MinGW does not have. Interfaces begin with IUnknown's three functions. */
typedef struct {
    const void *text;
    SIZE_T size;
    UINT encoding;
} DxcBuffer;

typedef struct DxcCompiler DxcCompiler;
struct DxcCompiler {
    struct {
        void *unknown[3];
        HRESULT(STDMETHODCALLTYPE *Compile)
        (DxcCompiler *self, const DxcBuffer *source, LPCWSTR *arguments, UINT32 count, void *includes, REFIID iid,
         void **result);
    } *functions;
};

typedef struct DxcResult DxcResult;
struct DxcResult {
    struct {
        void *unknown[2];
        ULONG(STDMETHODCALLTYPE *Release)(DxcResult *self);
        HRESULT(STDMETHODCALLTYPE *GetStatus)(DxcResult *self, HRESULT *status);
        HRESULT(STDMETHODCALLTYPE *GetResult)(DxcResult *self, ID3DBlob **blob);
        HRESULT(STDMETHODCALLTYPE *GetErrorBuffer)(DxcResult *self, ID3DBlob **blob);
    } *functions;
};

static const GUID CLSID_DXC_COMPILER = {
    0x73e22d93, 0xe6ce, 0x47f3, {0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0}};
static const GUID IID_DXC_COMPILER3 = {
    0x228b4687, 0x5a6a, 0x4730, {0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54}};
static const GUID IID_DXC_RESULT = {0x58346cda, 0xdde7, 0x4497, {0x94, 0x61, 0x6f, 0x87, 0xaf, 0x5e, 0x06, 0x59}};

static const UINT UTF8 = 65001;

static pD3DCompile fxc;
static DxcCompiler *dxc;

static void fail(const char *what) {
    fprintf(stderr, "%s: error %lu\n", what, GetLastError());
    exit(2);
}

static FARPROC function_of(const char *library, const char *name) {
    HMODULE module = LoadLibraryA(library);
    if (!module) fail(library);
    FARPROC function = GetProcAddress(module, name);
    if (!function) fail(name);
    return function;
}

static void load_compilers(void) {
    fxc = (pD3DCompile)(void *)function_of("d3dcompiler_47.dll", "D3DCompile");
    typedef HRESULT(WINAPI * Create)(const GUID *class, const GUID *iid, void **object);
    Create create = (Create)(void *)function_of("dxcompiler.dll", "DxcCreateInstance");
    if (FAILED(create(&CLSID_DXC_COMPILER, &IID_DXC_COMPILER3, (void **)&dxc))) fail("DxcCreateInstance");
}

/* Prints and releases the blob. */
static void print_message(ID3DBlob *message) {
    if (!message) return;
    printf("%.*s\n", (int)ID3D10Blob_GetBufferSize(message), (const char *)ID3D10Blob_GetBufferPointer(message));
    ID3D10Blob_Release(message);
}

/* Returns whether FXC accepts the shader, and the size of its output. Prints FXC's message if it refuses. */
static int by_fxc(const char *text, size_t size, const char *entry_point, const char *target, size_t *bytes) {
    ID3DBlob *code = NULL, *message = NULL;
    HRESULT result =
        fxc(text, size, NULL, NULL, NULL, entry_point, target, D3DCOMPILE_ENABLE_STRICTNESS, 0, &code, &message);
    if (FAILED(result)) {
        print_message(message);
        return 0;
    }
    if (message) ID3D10Blob_Release(message);
    *bytes = ID3D10Blob_GetBufferSize(code);
    ID3D10Blob_Release(code);
    return 1;
}

static int by_dxc(const char *text, size_t size, const char *entry_point, const char *target, size_t *bytes) {
    wchar_t wide_entry_point[128], wide_target[16];
    MultiByteToWideChar(CP_UTF8, 0, entry_point, -1, wide_entry_point, 128);
    MultiByteToWideChar(CP_UTF8, 0, target, -1, wide_target, 16);
    LPCWSTR arguments[] = {L"-E",  wide_entry_point, L"-T",           wide_target,
                           L"-HV", L"2018",          L"-no-warnings", L"-Ges"};
    DxcBuffer source = {text, size, UTF8};
    DxcResult *result = NULL;
    HRESULT status = dxc->functions->Compile(dxc, &source, arguments, sizeof arguments / sizeof *arguments, NULL,
                                             &IID_DXC_RESULT, (void **)&result);
    if (FAILED(status)) fail("IDxcCompiler3::Compile");
    result->functions->GetStatus(result, &status);
    ID3DBlob *blob = NULL;
    if (FAILED(status)) {
        result->functions->GetErrorBuffer(result, &blob);
        print_message(blob);
    } else if (SUCCEEDED(result->functions->GetResult(result, &blob)) && blob) {
        *bytes = ID3D10Blob_GetBufferSize(blob);
        ID3D10Blob_Release(blob);
    }
    result->functions->Release(result);
    return SUCCEEDED(status) && *bytes > 0;
}

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(*size + 1, 1);
    if (!text || fread(text, 1, *size, file) != *size) fail(path);
    fclose(file);
    return text;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: compile.exe DIRECTORY\n");
        return 2;
    }
    load_compilers();
    LARGE_INTEGER frequency, begin, end;
    QueryPerformanceFrequency(&frequency);
    size_t size;
    int count = 0, refused = 0;
    char *list = read_file(argv[1], "kernels.tsv", &size);
    for (char *line = list; *line;) {
        char *fields[5];
        for (int i = 0; i < 5; i++) {
            fields[i] = line;
            line += strcspn(line, "\t\n");
            if (*line) *line++ = 0;
        }
        char *text = read_file(argv[1], fields[0], &size);
        int is_fxc = strcmp(fields[1], "fxc") == 0;
        size_t bytes = 0;
        QueryPerformanceCounter(&begin);
        int taken = (is_fxc ? by_fxc : by_dxc)(text, size, fields[2], fields[3], &bytes);
        QueryPerformanceCounter(&end);
        double seconds = (double)(end.QuadPart - begin.QuadPart) / (double)frequency.QuadPart;
        free(text);
        printf("%s\t%s\t%.2f s\t%u bytes\t%s\t%s\n", taken ? "ok" : "REFUSED", fields[1], seconds, (unsigned)bytes,
               fields[0], fields[4]);
        fflush(stdout);
        count++;
        refused += !taken;
    }
    printf("%d kernels, %d refused\n", count, refused);
    return count == 0 || refused > 0;
}
