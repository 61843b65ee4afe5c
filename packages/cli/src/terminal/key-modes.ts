// Kitty keyboard protocol: how a program learns of Shift-Enter and Ctrl-I. The filter holds the stack of modes itself, so that a
// program takes back what it put there and nothing of the user’s.

import type { Control } from './screen-sequences.ts';

const CSI = '\u001b[';
// Unambiguous keys, and what they are on other layouts. Left out: releases of keys, and keys that type text as sequences;
// with either, Enter ~ . would no longer leave.
const ALLOWED = 0b101;
// As deep as terminals keep it.
const MAX_DEPTH = 16;

interface Stack {
  modes: number[];
  // Whether the terminal has a mode of the program’s on this screen.
  pushed: boolean;
}

/** The modes of the keyboard that a program asked for. Terminals keep those of the alternate screen apart. */
export class KeyModes {
  #here: Stack = { modes: [], pushed: false };
  #there: Stack = { modes: [], pushed: false };
  #alternate = false;

  /** The mode that the program has now. */
  get current(): number {
    return this.#here.modes.at(-1) ?? 0;
  }

  /** What a sequence of the protocol becomes; null where it is another sequence. */
  change({ prefix, numbers, space, final }: Control): string | null {
    if (final !== 'u' || space !== '' || !/^[<=>]$/.test(prefix)) return null;
    const [whole, first, second] = /^(\d{0,5})(?:;(\d{0,5}))?$/.exec(numbers) ?? [];
    if (whole === undefined) return '';
    if (prefix === '<') return this.#pop(Number(first || '1'));
    const mode = Number(first) & ALLOWED;
    return prefix === '>' ? this.#push(mode) : this.#set(mode, Number(second || '1'));
  }

  /** What goes around a switch of the screen: before it and after it. */
  switched(alternate: boolean): readonly [before: string, after: string] {
    if (alternate === this.#alternate) return ['', ''];
    this.#alternate = alternate;
    const before = alternate ? '' : this.#off();
    [this.#here, this.#there] = [this.#there, this.#here];
    return [before, this.#here.modes.length > 0 && !this.#here.pushed ? this.#on() : ''];
  }

  /** What gives the keyboard back on this screen. */
  undo(): string {
    this.#here.modes = [];
    if (!this.#there.pushed) this.#there.modes = [];
    return this.#off();
  }

  #push(mode: number): string {
    const { modes } = this.#here;
    modes.push(mode);
    if (modes.length > MAX_DEPTH) modes.shift();
    return this.#on();
  }

  #pop(count: number): string {
    const { modes } = this.#here;
    modes.splice(Math.max(0, modes.length - count));
    return modes.length === 0 ? this.#off() : this.#on();
  }

  // 1 replaces the mode, 2 adds to it, 3 takes away.
  #set(mode: number, how: number): string {
    const { modes } = this.#here;
    const before = modes.pop() ?? 0;
    modes.push(how === 2 ? before | mode : how === 3 ? before & ~mode : mode);
    return this.#on();
  }

  #on(): string {
    const sign = this.#here.pushed ? '=' : '>';
    this.#here.pushed = true;
    return `${CSI}${sign}${this.current}u`;
  }

  #off(): string {
    if (!this.#here.pushed) return '';
    this.#here.pushed = false;
    return `${CSI}<1u`;
  }
}
