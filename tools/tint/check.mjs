// Compiles WGSL files with Tint, the WGSL compiler of Chrome, through Dawn in node.
//
//   node check.mjs DIRECTORY
//
// DIRECTORY contains self-contained `NAME.wgsl` files, each with a `NAME.json`:
//
//   {"entry_point": "main", "constants": {"workgroup_size": 64}}
//
// Each file becomes a shader module and a compute pipeline with those override constants, as in a browser. Every error
// is printed with its file and line. Exit status: 0 if everything was accepted, 1 if something was not or there was
// nothing to check, 2 on a usage error.
//
// It runs on Dawn's null backend, which checks everything and compiles for no driver: a driver's compiler takes a
// hundred times as long as Tint.

import { readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { create, globals } from 'webgpu';

// Dawn has threads that would keep node alive, so every exit is explicit.
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

// Errors outside any one pipeline; each file is checked within its own error scope.
const stray = [];

Object.assign(globalThis, globals);
const gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
// Kept reachable to the end: a device does not outlive them, and collecting them crashes node.
globalThis.kept = { gpu, adapter };
if (!adapter) quit(1, 'tint: Dawn has no null backend');
// Features that kernels may use without a language error, if the adapter has them.
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
  // naga accepts the subgroup builtins without this line, but the language requires it.
  const directive =
    /\bsubgroup[A-Z_]/.test(source) && !/^\s*enable\b[^;]*\bsubgroups\b/m.test(source) ? 'enable subgroups; ' : '';

  const errors = [];
  // The scope is closed before any await, so it contains only this module's errors.
  device.pushErrorScope('validation');
  const shader = device.createShaderModule({ label: file, code: directive + source });
  const scope = device.popErrorScope();
  for (const m of (await shader.getCompilationInfo()).messages) {
    if (m.type !== 'error') continue;
    // The directive is on the first line, so only that line's columns move.
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

// Dawn's null adapter has less workgroup memory than the adapter that a text was planned for may have.
const tooMuchMemory = /total use of workgroup storage/;
const found = [];
let withoutRoom = 0;
for (const file of files) {
  const errors = await check(file);
  withoutRoom += Number(errors.some((error) => tooMuchMemory.test(error)));
  found.push(errors.filter((error) => !tooMuchMemory.test(error)));
}
if (withoutRoom > 0) console.log(`tint: ${withoutRoom} shaders are valid, but need more workgroup memory than Dawn's null adapter has`);
const accepted = found.filter((errors) => errors.length === 0).length;
const errors = [...found.flat(), ...stray.map((message) => `uncaptured: ${message}`)];
for (const error of errors) console.error(error);
console.log(`tint: ${accepted} of ${files.length} shaders accepted (features: ${optional.join(', ') || 'none'})`);
process.exit(errors.length === 0 ? 0 : 1);
