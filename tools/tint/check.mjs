// Compiles WGSL files with Tint, the WGSL compiler of Chrome, through Dawn in node.
//
//   node check.mjs DIRECTORY
//
// DIRECTORY holds self-contained `NAME.wgsl` files, and beside each a `NAME.json`:
//
//   {"entry_point": "main", "constants": {"workgroup_size": 64}}
//
// Each becomes a shader module and a compute pipeline with those override constants, as a browser
// would make them. Every error is printed with its file and line. Exit status: 0 when everything was
// accepted, 1 when something was not or there was nothing to check, 2 on a usage error.
//
// On Dawn's null backend, which checks all of it and compiles for no driver: a driver's compiler takes a
// hundred times as long as Tint does.

import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { create, globals } from 'webgpu';

// Dawn holds threads that would keep node alive, so every way out is an explicit exit.
function quit(status, ...lines) {
  for (const line of lines) console.error(line);
  process.exit(status);
}
process.on('unhandledRejection', (e) => quit(1, `tint: ${e?.stack ?? e}`));
process.on('uncaughtException', (e) => quit(1, `tint: ${e?.stack ?? e}`));

const [directory, ...rest] = process.argv.slice(2);
if (!directory || rest.length > 0) quit(2, 'usage: node check.mjs DIRECTORY');

let files;
try {
  files = readdirSync(directory).filter((name) => name.endsWith('.wgsl')).sort();
} catch (e) {
  quit(1, `tint: cannot read the directory ${directory}: ${e.message}`);
}
if (files.length === 0) quit(1, `tint: no .wgsl file in ${directory}`);

// Errors that come outside any one pipeline; each file is checked within its own error scope.
const stray = [];

Object.assign(globalThis, globals);
const gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
// Reachable to the end: a device outlives neither of them, and their collection crashes node.
globalThis.kept = { gpu, adapter };
if (!adapter) quit(1, 'tint: Dawn has no null backend');
// What kernels may use without it being a language error, where the adapter has it.
const optional = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
const limits = {};
for (const name of [
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupSizeZ',
]) {
  limits[name] = adapter.limits[name];
}
const device = await adapter.requestDevice({ requiredFeatures: optional, requiredLimits: limits });
device.addEventListener('uncapturederror', (event) => stray.push(event.error.message));

// The errors of one file, as `FILE:LINE:COLUMN: message` lines.
async function check(file) {
  const path = join(directory, file);
  let settings;
  try {
    settings = JSON.parse(readFileSync(path.replace(/\.wgsl$/, '.json'), 'utf8'));
    if (typeof settings.entry_point !== 'string') throw new Error('no "entry_point"');
  } catch (e) {
    return [`${file}: cannot use ${basename(file, '.wgsl')}.json: ${e.message}`];
  }
  const source = readFileSync(path, 'utf8');
  // naga takes the subgroup builtins without this line, which the language requires.
  const directive =
    /\bsubgroup[A-Z_]/.test(source) && !/^\s*enable\b[^;]*\bsubgroups\b/m.test(source) ? 'enable subgroups; ' : '';

  const errors = [];
  // The scope is closed before anything is awaited, so it holds this module's errors only.
  device.pushErrorScope('validation');
  const shader = device.createShaderModule({ label: file, code: directive + source });
  const scope = device.popErrorScope();
  for (const m of (await shader.getCompilationInfo()).messages) {
    if (m.type !== 'error') continue;
    // The directive sits on the first line, so only the columns of that line move.
    const column = m.lineNum === 1 ? m.linePos - directive.length : m.linePos;
    errors.push(`${file}:${m.lineNum}:${column}: ${m.message}`);
  }
  if (errors.length === 0) {
    try {
      await device.createComputePipelineAsync({
        label: file,
        layout: 'auto',
        compute: { module: shader, entryPoint: settings.entry_point, constants: settings.constants ?? {} },
      });
    } catch (e) {
      errors.push(`${file}: pipeline: ${e.message}`);
    }
  }
  const scoped = await scope;
  if (scoped && errors.length === 0) errors.push(`${file}: ${scoped.message}`);
  return errors;
}

const found = [];
for (const file of files) found.push(await check(file));
const accepted = found.filter((errors) => errors.length === 0).length;
const errors = [...found.flat(), ...stray.map((message) => `uncaptured: ${message}`)];
for (const error of errors) console.error(error);
console.log(`tint: ${accepted} of ${files.length} shaders accepted (features: ${optional.join(', ') || 'none'})`);
process.exit(errors.length === 0 ? 0 : 1);
