// Runs in every context before the program, from bytecode. It pins the clock, the zone and randomness, and stands in for
// natives of the engine that can run for minutes without being interruptible, where a guard before them does not do
// (ffi/natives.rs has those).
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
  const NativeDate = globalThis.Date;
  const NativeString = String;
  const symSpreadable = Symbol.isConcatSpreadable;
  const test = uncurry(RegExp.prototype.test);

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
  // Assigned, not defined: built-in methods stay writable and not enumerable, and a descriptor costs ten times as much. A
  // method of a literal is no constructor, and has the name and length that it is written with.
  const put = (object, methods) => {
    for (const name of ownKeys(methods)) object[name] = methods[name];
  };

  // ---- guards ----------------------------------------------------------------------------------------------------
  const MAX_LENGTH = 1000000;
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
  put(Array.prototype, {
    concat(first) {
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
      for (let i = 0; i < arguments.length; i++) add(arguments[i]);
      into.length = at;
      return into;
    },
    flat() {
      const depth = arguments[0];
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
  });

  const short = (text) => {
    if (text.length > MAX_NORMALIZE) {
      throw new NativeRangeError(`this method takes at most ${MAX_NORMALIZE} characters here`);
    }
    return text;
  };
  const { normalize, localeCompare } = String.prototype;
  put(String.prototype, {
    normalize() {
      if (this === null || this === undefined) throw new NativeTypeError('not a string');
      return apply(normalize, short(`${this}`), arguments);
    },
    localeCompare(that) {
      if (this === null || this === undefined) throw new NativeTypeError('not a string');
      return apply(localeCompare, short(`${this}`), [short(`${that}`)]);
    },
  });
  const rawText = String.raw;
  put(String, {
    raw(cooked, ...args) {
      const raw = cooked.raw;
      checkLength(raw);
      const all = [{ raw }];
      for (let i = 0; i < args.length; i++) show(all, i + 1, args[i]);
      return apply(rawText, NativeString, all);
    },
  });

  // ---- randomness, clock and zone --------------------------------------------------------------------------------
  put(Math, { random() { return native.random(); } });

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
  // In place of the native one: its name and length are looked at.
  function Date(year, month, date, hours, minutes, seconds, ms) {
    if (new.target === undefined) return apply(proto.toString, new NativeDate(native.now()), []);
    return construct(NativeDate, [timeOf(arguments)], new.target);
  }
  defineProperty(Date, 'prototype', { __proto__: null, value: proto, writable: false });
  hide(Date, 'now', ({ now() { return native.now(); } }).now);
  hide(Date, 'parse', ({ parse(text) { return parse(`${text}`); } }).parse);
  hide(Date, 'UTC', UTC);
  proto.constructor = Date;
  globalThis.Date = Date;
  const getUTC = (part) => uncurry(proto['getUTC' + part]);
  const year = getUTC('FullYear');
  const month = getUTC('Month');
  const day = getUTC('Date');
  const weekday = getUTC('Day');
  const hours = getUTC('Hours');
  const minutes = getUTC('Minutes');
  const seconds = getUTC('Seconds');
  delete proto.setYear;
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
  const print = (date, text) => {
    const time = getTime(date);
    return time === time ? text(date) : 'Invalid Date';
  };
  const fullText = (d) => `${dateText(d)} ${clockText(d)} GMT+0000 (UTC)`;
  const timeText = (d) => `${clockText(d)} GMT+0000 (UTC)`;
  const localeText = (d) => `${localeDate(d)}, ${localeTime(d)}`;
  put(proto, {
    getYear() { return year(this) - 1900; },
    getTimezoneOffset() { return getTime(this) * 0; },
    toString() { return print(this, fullText); },
    toDateString() { return print(this, dateText); },
    toTimeString() { return print(this, timeText); },
    toLocaleString() { return print(this, localeText); },
    toLocaleDateString() { return print(this, localeDate); },
    toLocaleTimeString() { return print(this, localeTime); },
  });

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
