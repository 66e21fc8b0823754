// Runs in every context before the program, from bytecode. It takes away what is not offered, pins the clock, the zone
// and randomness, and puts guards before natives of the engine that can run for minutes without being interruptible.
// It captures every built-in that it uses, so that a program which replaces one changes nothing here.
(native) => {
  'use strict';
  const { apply, construct, defineProperty, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
  const uncurry = (method) => (self, ...args) => apply(method, self, args);
  const { isArray } = Array;
  const { freeze, hasOwn } = Object;
  const NativeTypeError = TypeError;
  const NativeRangeError = RangeError;
  const NativeError = Error;
  const NativeObject = Object;
  const NativeDate = Date;
  const NativeString = String;
  const symSpreadable = Symbol.isConcatSpreadable;
  const test = uncurry(RegExp.prototype.test);

  // ---- what is offered: a list, so that a new version of the engine adds nothing unnoticed -----------------------
  const offered = new Set(['Object', 'Function', 'Error', 'EvalError', 'RangeError', 'ReferenceError', 'SyntaxError',
    'TypeError', 'URIError', 'InternalError', 'AggregateError', 'SuppressedError', 'Iterator', 'Array', 'parseInt',
    'parseFloat', 'isNaN', 'isFinite', 'decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape',
    'unescape', 'Infinity', 'NaN', 'undefined', 'queueMicrotask', 'Number', 'Boolean', 'String', 'Symbol', 'Math',
    'Reflect', 'Date', 'RegExp', 'JSON', 'Map', 'Set', 'WeakMap', 'WeakSet', 'ArrayBuffer', 'DataView', 'Int8Array',
    'Uint8Array', 'Uint8ClampedArray', 'Int16Array', 'Uint16Array', 'Int32Array', 'Uint32Array', 'BigInt64Array',
    'BigUint64Array', 'Float16Array', 'Float32Array', 'Float64Array', 'Promise', 'BigInt', 'globalThis']);
  for (const key of ownKeys(globalThis)) {
    if (typeof key === 'string' && !offered.has(key)) delete globalThis[key];
  }
  for (const key of ['captureStackTrace', 'prepareStackTrace', 'stackTraceLimit']) delete Error[key];
  delete JSON.rawJSON;
  delete JSON.isRawJSON;

  // Descriptors without a prototype: a program may put `get` on Object.prototype.
  const hide = (object, name, value) =>
    defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  const show = (object, name, value) =>
    defineProperty(object, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  const lock = (name, value) =>
    defineProperty(globalThis, name, { __proto__: null, value, writable: false, enumerable: false, configurable: false });
  // A method that is no constructor, with the name and length of the one that it stands for.
  const replace = (object, name, make) => {
    const original = object[name];
    if (typeof original !== 'function') return;
    const method = make(original);
    defineProperty(method, 'name', { value: original.name, configurable: true });
    defineProperty(method, 'length', { value: original.length, configurable: true });
    hide(object, name, method);
  };

  // ---- guards ----------------------------------------------------------------------------------------------------
  const MAX_LENGTH = 1000000;
  const MAX_SEARCH = 2e8;
  const MAX_NORMALIZE = 10000;
  const LOOK_AT_CLOCK = 4096;

  const typedArray = getPrototypeOf(Uint8Array.prototype);
  const typedTag = uncurry(getOwnPropertyDescriptor(typedArray, Symbol.toStringTag).get);
  const typedLength = uncurry(getOwnPropertyDescriptor(typedArray, 'length').get);
  const tooLong = (length) =>
    new NativeRangeError(`this method takes at most ${MAX_LENGTH} elements here, not ${length}`);

  // The length that a native is going to see, without running anything of the program.
  const lengthOf = (self) => {
    if (typeof self === 'string') return self.length;
    if (self === null || (typeof self !== 'object' && typeof self !== 'function')) return 0;
    if (isArray(self)) return self.length;
    if (typedTag(self) !== undefined) return typedLength(self);
    for (let at = self; at !== null; at = getPrototypeOf(at)) {
      const property = getOwnPropertyDescriptor(at, 'length');
      if (property === undefined) continue;
      if (!hasOwn(property, 'value') || (typeof property.value === 'object' && property.value !== null)
        || typeof property.value === 'function') {
        throw new NativeTypeError('array methods take no object whose length is computed here');
      }
      return +property.value || 0;
    }
    return 0;
  };
  const checkLength = (self) => {
    const length = lengthOf(self);
    if (length > MAX_LENGTH) throw tooLong(length);
    if (length > LOOK_AT_CLOCK) native.tick();
  };
  const guardLength = (prototype, names) => {
    for (const name of names) {
      replace(prototype, name, (original) => ({
        method(...args) {
          checkLength(this);
          return apply(original, this, args);
        },
      }).method);
    }
  };
  guardLength(Array.prototype, ['copyWithin', 'fill', 'includes', 'indexOf', 'join', 'lastIndexOf', 'reverse', 'shift',
    'slice', 'sort', 'splice', 'toLocaleString', 'toReversed', 'toSorted', 'toSpliced', 'unshift', 'with']);
  guardLength(typedArray, ['join', 'sort', 'toLocaleString', 'toReversed', 'toSorted', 'with']);

  // Linear, and quick enough once, but a loop of them is looked at only every 10,000 steps.
  const tickBefore = (prototype, names, isLong) => {
    for (const name of names) {
      replace(prototype, name, (original) => ({
        method(...args) {
          if (isLong(this)) native.tick();
          return apply(original, this, args);
        },
      }).method);
    }
  };
  tickBefore(typedArray, ['copyWithin', 'fill', 'includes', 'indexOf', 'lastIndexOf', 'reverse', 'set', 'slice'],
    (self) => typedTag(self) !== undefined && typedLength(self) > LOOK_AT_CLOCK);
  tickBefore(ArrayBuffer.prototype, ['resize'], () => true);

  const spreads = (value) => {
    if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
    for (let at = value; at !== null; at = getPrototypeOf(at)) {
      const property = getOwnPropertyDescriptor(at, symSpreadable);
      if (property !== undefined && !hasOwn(property, 'value')) {
        throw new NativeTypeError('concat takes no computed Symbol.isConcatSpreadable here');
      }
    }
    const spreadable = value[symSpreadable];
    return spreadable === undefined ? isArray(value) : !!spreadable;
  };
  // Not the native one: a getter among the first elements can lengthen an array that comes later.
  replace(Array.prototype, 'concat', () => ({
    method(...args) {
      if (this === null || this === undefined) throw new NativeTypeError('cannot convert to object');
      const into = [];
      let at = 0;
      const add = (value) => {
        if (!spreads(value)) {
          show(into, at, value);
          at += 1;
          return;
        }
        checkLength(value);
        const length = lengthOf(value);
        for (let i = 0; i < length; i++) {
          if (i in value) show(into, at + i, value[i]);
        }
        at += length;
      };
      add(NativeObject(this));
      for (let i = 0; i < args.length; i++) add(args[i]);
      into.length = at;
      return into;
    },
  }).method);
  replace(Array.prototype, 'flat', () => ({
    method(depth) {
      const flatten = (from, left, into) => {
        checkLength(from);
        const length = lengthOf(from);
        for (let i = 0; i < length; i++) {
          if (!(i in from)) continue;
          const element = from[i];
          if (left > 0 && isArray(element)) flatten(element, left - 1, into);
          else show(into, into.length, element);
        }
        return into;
      };
      if (this === null || this === undefined) throw new NativeTypeError('cannot convert to object');
      return flatten(this, depth === undefined ? 1 : +depth || 0, []);
    },
  }).method);

  const guardSearch = (name, symbol) => replace(String.prototype, name, (original) => ({
    method(...args) {
      let self = this;
      if (self !== null && self !== undefined && typeof self !== 'string') self = `${self}`;
      let needle = args[0];
      if (needle !== null && (typeof needle === 'object' || typeof needle === 'function')
        && (symbol === undefined || needle[symbol] === undefined || needle[symbol] === null)) {
        needle = args[0] = `${needle}`;
      }
      if (typeof self === 'string' && self.length > LOOK_AT_CLOCK) {
        if (typeof needle === 'string' && self.length * needle.length > MAX_SEARCH) {
          throw new NativeRangeError('the searched and the wanted text are too long here');
        }
        native.tick();
      }
      return apply(original, self, args);
    },
  }).method);
  guardSearch('indexOf');
  guardSearch('lastIndexOf');
  guardSearch('includes');
  guardSearch('split', Symbol.split);
  guardSearch('replace', Symbol.replace);
  guardSearch('replaceAll', Symbol.replace);
  for (const name of ['toLowerCase', 'toUpperCase', 'toLocaleLowerCase', 'toLocaleUpperCase', 'trim', 'trimStart',
    'trimEnd', 'startsWith', 'endsWith', 'isWellFormed', 'toWellFormed']) {
    replace(String.prototype, name, (original) => ({
      method(...args) {
        if (typeof this === 'string' && this.length > LOOK_AT_CLOCK) native.tick();
        return apply(original, this, args);
      },
    }).method);
  }
  const short = (text) => {
    if (text.length > MAX_NORMALIZE) {
      throw new NativeRangeError(`this method takes at most ${MAX_NORMALIZE} characters here`);
    }
    return text;
  };
  replace(String.prototype, 'normalize', (original) => ({
    method(...args) {
      if (this === null || this === undefined) throw new NativeTypeError('not a string');
      return apply(original, short(`${this}`), args);
    },
  }).method);
  replace(String.prototype, 'localeCompare', (original) => ({
    method(that) {
      if (this === null || this === undefined) throw new NativeTypeError('not a string');
      return apply(original, short(`${this}`), [short(`${that}`)]);
    },
  }).method);
  replace(String, 'raw', (original) => ({
    method(...args) {
      const raw = args[0].raw;
      checkLength(raw);
      args[0] = { raw };
      return apply(original, NativeString, args);
    },
  }).method);

  // ---- randomness, clock and zone --------------------------------------------------------------------------------
  hide(Math, 'random', ({ random() { return native.random(); } }).random);

  const proto = NativeDate.prototype;
  const getTime = uncurry(proto.getTime);
  const toISOString = uncurry(proto.toISOString);
  const nativeParse = NativeDate.parse;
  const UTC = NativeDate.UTC;
  const isoTime = /^([+-]\d{6}|\d{4})-\d\d(-\d\d)?T\d\d:\d\d(:\d\d([.,]\d+)?)?$/;
  const isoDate = /^([+-]\d{6}|\d{4})(-\d\d(-\d\d)?)?$/;
  const isoZone = /^([+-]\d{6}|\d{4})-\d\d(-\d\d)?T.*(Z|[+-]\d\d:?\d\d)$/;
  // Text without a zone means UTC, whatever zone the process has. A zone in front is overruled by one that follows.
  const parse = (text) => {
    if (test(isoTime, text)) return nativeParse(text + 'Z');
    if (test(isoDate, text) || test(isoZone, text)) return nativeParse(text);
    return nativeParse('UTC ' + text);
  };
  const timeOf = (args) => {
    if (args.length === 0) return native.now();
    if (args.length > 1) return apply(UTC, undefined, args);
    let value = args[0];
    if (typeof value === 'object' && value !== null) {
      try { return getTime(value); } catch { /* no date */ }
      const convert = value[Symbol.toPrimitive];
      if (convert !== undefined && convert !== null) value = apply(convert, value, ['default']);
      else {
        const first = value.valueOf();
        value = typeof first === 'object' && first !== null ? value.toString() : first;
      }
    }
    return typeof value === 'string' ? parse(value) : +value;
  };
  function PinnedDate(...args) {
    if (new.target === undefined) return apply(proto.toString, new NativeDate(native.now()), []);
    return construct(NativeDate, [timeOf(args)], new.target);
  }
  defineProperty(PinnedDate, 'name', { value: 'Date', configurable: true });
  defineProperty(PinnedDate, 'length', { value: 7, configurable: true });
  defineProperty(PinnedDate, 'prototype', { value: proto, writable: false, enumerable: false, configurable: false });
  hide(PinnedDate, 'now', ({ now() { return native.now(); } }).now);
  hide(PinnedDate, 'parse', ({ parse(text) { return parse(`${text}`); } }).parse);
  hide(PinnedDate, 'UTC', UTC);
  hide(proto, 'constructor', PinnedDate);
  hide(globalThis, 'Date', PinnedDate);
  for (const part of ['FullYear', 'Month', 'Date', 'Day', 'Hours', 'Minutes', 'Seconds', 'Milliseconds']) {
    const get = proto['getUTC' + part];
    replace(proto, 'get' + part, () => ({ method() { return apply(get, this, []); } }).method);
    if (part === 'Day') continue;
    const set = proto['setUTC' + part];
    replace(proto, 'set' + part, () => ({ method(...args) { return apply(set, this, args); } }).method);
  }
  const getUTC = (part) => uncurry(proto['getUTC' + part]);
  const year = getUTC('FullYear');
  const month = getUTC('Month');
  const day = getUTC('Date');
  const weekday = getUTC('Day');
  const hours = getUTC('Hours');
  const minutes = getUTC('Minutes');
  const seconds = getUTC('Seconds');
  hide(proto, 'getYear', ({ getYear() { return year(this) - 1900; } }).getYear);
  delete proto.setYear;
  hide(proto, 'getTimezoneOffset', ({ getTimezoneOffset() { return getTime(this) * 0; } }).getTimezoneOffset);
  const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
  const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
  const pad = (number, width) => {
    let text = `${number < 0 ? -number : number}`;
    while (text.length < width) text = '0' + text;
    return number < 0 ? '-' + text : text;
  };
  const dateText = (d) => `${DAYS[weekday(d)]} ${MONTHS[month(d)]} ${pad(day(d), 2)} ${pad(year(d), 4)}`;
  const clockText = (d) => `${pad(hours(d), 2)}:${pad(minutes(d), 2)}:${pad(seconds(d), 2)}`;
  const localeDate = (d) => `${pad(month(d) + 1, 2)}/${pad(day(d), 2)}/${pad(year(d), 4)}`;
  const localeTime = (d) => {
    const hour = hours(d);
    return `${pad(hour % 12 || 12, 2)}:${pad(minutes(d), 2)}:${pad(seconds(d), 2)} ${hour < 12 ? 'AM' : 'PM'}`;
  };
  const printer = (name, print) => hide(proto, name, ({
    print() {
      const time = getTime(this);
      return time === time ? print(this) : 'Invalid Date';
    },
  }).print);
  printer('toString', (d) => `${dateText(d)} ${clockText(d)} GMT+0000 (UTC)`);
  printer('toDateString', dateText);
  printer('toTimeString', (d) => `${clockText(d)} GMT+0000 (UTC)`);
  printer('toLocaleString', (d) => `${localeDate(d)}, ${localeTime(d)}`);
  printer('toLocaleDateString', localeDate);
  printer('toLocaleTimeString', localeTime);

  // ---- console ---------------------------------------------------------------------------------------------------
  const console = {};
  for (const [name, level] of [['log', 'log'], ['info', 'info'], ['warn', 'warn'], ['error', 'error'],
    ['debug', 'debug'], ['dir', 'log'], ['trace', 'log']]) {
    const method = ({ [name](...args) { native.log(level, args); } })[name];
    defineProperty(console, name, { value: freeze(method), enumerable: true });
  }
  lock('console', freeze(console));

  // ---- errors of ours --------------------------------------------------------------------------------------------
  const stackOf = uncurry(getOwnPropertyDescriptor(Error.prototype, 'stack').get);
  const brands = new WeakMap();
  const brandSet = uncurry(WeakMap.prototype.set);
  const brandGet = uncurry(WeakMap.prototype.get);
  class ApprovalRejected extends Error {}
  hide(ApprovalRejected.prototype, 'name', 'ApprovalRejected');
  freeze(ApprovalRejected.prototype);
  lock('ApprovalRejected', freeze(ApprovalRejected));
  const makeRejected = (fn, seq, callId, reason, message, stack) => {
    const error = construct(NativeError, [message], ApprovalRejected);
    show(error, 'fn', fn);
    show(error, 'seq', seq);
    show(error, 'callId', callId);
    show(error, 'reason', reason);
    hide(error, 'stack', stack);
    brandSet(brands, error, seq);
    return error;
  };
  const makeError = (name, message, code, seq, stack) => {
    const error = new NativeError(message);
    if (name !== 'Error') hide(error, 'name', name);
    if (code !== undefined) show(error, 'code', code);
    hide(error, 'stack', stack);
    brandSet(brands, error, seq);
    return error;
  };

  const makeTypeError = (message, stack) => {
    const error = new NativeTypeError(message);
    hide(error, 'stack', stack);
    return error;
  };

  const limit = 1n << 1024n;
  return {
    makeError,
    makeTypeError,
    makeRejected,
    brand: (error) => (typeof error === 'object' && error !== null ? brandGet(brands, error) : undefined),
    dateText: (date) => { const time = getTime(date); return time === time ? toISOString(date) : undefined; },
    isSmall: (value) => value < limit && value > -limit,
    datePrototype: proto,
    stackOf,
    TypeError: NativeTypeError,
    lock: (name, value) => lock(name, freeze(value)),
  };
}
