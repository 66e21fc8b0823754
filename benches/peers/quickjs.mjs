// quickjs-emscripten, asked as benches/src/sandbox.rs says. Its folder is the first argument.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const { getQuickJS } = await import(pathToFileURL(`${process.argv[2]}/node_modules/quickjs-emscripten/dist/index.mjs`));
const quickjs = await getQuickJS();

const laps = async (count, work) => {
  for (let i = 0; i < count / 10; i++) await work();
  const samples = [];
  for (let i = 0; i < count; i++) {
    const before = process.hrtime.bigint();
    await work();
    samples.push(Number(process.hrtime.bigint() - before) / 1e3);
  }
  return { samples };
};

const trivial = () => {
  const vm = quickjs.newContext();
  const result = vm.unwrapResult(vm.evalCode('1+1'));
  if (vm.getNumber(result) !== 2) throw new Error('wrong');
  result.dispose();
  vm.dispose();
};

const calling = async (calls) => {
  const runtime = quickjs.newRuntime();
  runtime.setMemoryLimit(64 << 20);
  runtime.setMaxStackSize(1 << 20);
  runtime.setInterruptHandler(() => false);
  const vm = runtime.newContext();
  const read = vm.newFunction('read', (handle) => {
    const input = vm.dump(handle);
    const deferred = vm.newPromise();
    Promise.resolve({ n: input.n }).then((output) => {
      const object = vm.newObject();
      const n = vm.newNumber(output.n);
      vm.setProp(object, 'n', n);
      n.dispose();
      deferred.resolve(object);
      object.dispose();
      deferred.dispose();
      runtime.executePendingJobs();
    });
    return deferred.handle;
  });
  vm.setProp(vm.global, 'read', read);
  read.dispose();
  const code = `(async () => { let s = 0; for (let i = 0; i < ${calls}; i++) { const r = await read({ path: '/a/' + i, n: i }); s += r.n } return s })()`;
  const promise = vm.unwrapResult(vm.evalCode(code));
  const settled = vm.resolvePromise(promise);
  runtime.executePendingJobs();
  const value = vm.unwrapResult(await settled);
  if (vm.getNumber(value) !== (calls * (calls - 1)) / 2) throw new Error('wrong');
  value.dispose();
  promise.dispose();
  vm.dispose();
  runtime.dispose();
};

for await (const line of createInterface({ input: process.stdin })) {
  const ask = JSON.parse(line);
  let told = 'unsupported';
  if (ask.ask === 'trivial') told = await laps(ask.count, trivial);
  if (ask.ask === 'calls') told = await laps(ask.count, () => calling(ask.calls));
  console.log(JSON.stringify(told));
}
