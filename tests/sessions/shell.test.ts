// A shell in a sandbox on a real terminal: programs draw on it, keys and sizes reach them, nothing acts on the host, and the
// terminal is given back however it ends.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import { engines, images, withoutEngines } from '../support/engines.ts';
import { Pane } from './pane.ts';

const FACTS = [
  'alternate_on',
  'cursor_flag',
  'insert_flag',
  'keypad_cursor_flag',
  'keypad_flag',
  'mouse_any_flag',
  'wrap_flag',
];

describe.skipIf(withoutEngines).each(engines)('a shell on $name', engine => {
  let bench: Bench;
  let id: string;
  let pane: Pane;
  let before: readonly string[];
  const acode = `${process.execPath} ${BIN}`;

  beforeAll(async () => {
    bench = await Bench.at(engine);
    id = (await bench.call(['sandbox', 'create', '--for', '30m'])).stdout.toString().trim();
  });

  afterAll(async () => {
    await bench.call(['sandbox', 'kill', id]);
    const left = await bench.left();
    // What a test that failed has left stays for nobody.
    await bench.call(['sandbox', 'cleanup', '--force']);
    await bench[Symbol.asyncDispose]();
    expect(left).toEqual([]);
  });

  const state = async (): Promise<string[]> => {
    await pane.line('clear; stty -g > modes; echo noted');
    await pane.until(/^noted$/m);
    const modes = await readFile(join(bench.workspace, 'modes'), 'utf8');
    return [modes, ...(await Promise.all(FACTS.map(fact => pane.fact(fact))))];
  };

  beforeEach(async () => {
    pane = await Pane.open(bench.workspace, { ...bench.env, COLORTERM: 'truecolor' });
    before = await state();
    await pane.line('clear');
  });

  afterEach(async () => {
    await pane[Symbol.asyncDispose]();
  });

  const open = async (words = ''): Promise<void> => {
    await pane.line(`clear; ${acode} sandbox shell ${words === '' ? id : words}; echo "status=$?"`);
    await pane.until(/[$#]$/);
  };

  it('is there for one command too: `acode run -t` has keys, size, colours, Ctrl-C and the exit status', async () => {
    const script =
      'trap "echo caught" INT; stty size; printf "\\033[31mred\\033[0m\\n"; read line; read line; while [ "$(stty size)" = "24 80" ]; do sleep 0.1; done; stty size; echo "[$line] $TERM $COLORTERM-$FORCE_COLOR"; exit 7';
    await pane.line(`clear; ${acode} run -t '${script}'; echo "status=$?"`);
    await pane.until(/^24 80\nred$/m);
    await pane.press('C-c');
    await pane.until(/caught/);
    await pane.resize(100, 30);
    await pane.line('one');
    const screen = await pane.until(/^status=7$/m);
    expect(screen).toMatch(/^30 100\n\[one\] screen-256color truecolor-$/m);
    expect(await pane.coloured()).toMatch(/\u001b\[31mred/);
    await pane.resize(80, 24);
    expect(await state()).toEqual(before);
    expect(await bench.left()).toHaveLength(1);
    const audit = (await bench.call(['audit', 'tail', '--json'])).stdout.toString();
    expect(audit).toContain('stty size');
  });

  it('is refused to one command where a stream is not a terminal, before anything is made', async () => {
    const { status, stderr } = await bench.call(['run', '-t', 'touch made']);
    expect(status).toBe(2);
    expect(stderr).toMatch(/-t needs a terminal for input and output.*\n[^]*Leave -t out/);
    expect(existsSync(join(bench.workspace, 'made'))).toBe(false);
  });

  it('is refused to one command at a level without persistent sandboxes, in terms of -t', async () => {
    const file = join(bench.workspace, 'low.yml');
    await writeFile(file, 'sandbox:\n  require_for: [high, critical]\n');
    await pane.line(`clear; ${acode} run -t --config ${file} --risk low --level ulimit -- true; echo "status=$?"`);
    const screen = await pane.until(/^status=2$/m);
    expect(screen).toMatch(/A terminal \(-t\) needs an engine/);
    expect(screen).toMatch(/Leave -t out/);
  });

  it('gives what the shell ended with, and the terminal as it was', async () => {
    await open();
    await pane.line('hostname; tty; exit 7');
    const screen = await pane.until(/^status=7$/m);
    expect(screen).toMatch(/^sandbox$/m);
    expect(screen).toMatch(/^\/dev\/(?:pts\/\d+|console)$/m);
    expect(await state()).toEqual(before);
  });

  it('says that its time was over', async () => {
    await open(`${id} --timeout 3`);
    const screen = await pane.until(/^status=124$/m);
    expect(screen.replaceAll(/\n +/g, ' ')).toContain(
      'the command was stopped at the time limit of 3 s, set by --timeout',
    );
    expect(screen).toContain('├▶ code: ACODE-SBX-007');
  });

  it('takes Ctrl-C, Ctrl-Z and Ctrl-D inside', async () => {
    await open();
    // What is typed before a program runs is for the shell, as on any terminal.
    await pane.line('echo going; sleep 100');
    await pane.until(/^going$/m);
    await pane.press('C-c');
    await pane.line('echo broken=$?');
    await pane.until(/^broken=130$/m);
    await pane.line('echo once more; sleep 100');
    await pane.until(/^once more$/m);
    await pane.press('C-z');
    await pane.line('echo stopped');
    await pane.until(/^stopped$/m);
    await pane.line('fg; echo back');
    await pane.until(/^sleep 100$/m);
    await pane.press('C-c');
    await pane.line('echo over');
    await pane.until(/^over$/m);
    await pane.press('C-d');
    await pane.until(/^status=\d+$/m);
    expect(await state()).toEqual(before);
  });

  it('has the size of the terminal, and hears of each change', async () => {
    await open();
    await pane.line('stty size');
    await pane.until(/^24 80$/m);
    // In a shell of its own: one that controls jobs is not in the foreground while another program is.
    await pane.line(`sh -c "trap 'echo heard' WINCH; echo ready; while :; do sleep 0.1; done"`);
    await pane.until(/^ready$/m);
    await pane.resize(101, 33);
    await pane.until(/^heard$/m);
    await pane.press('C-c');
    await pane.line('stty size');
    await pane.until(/^33 101$/m);
    await pane.line('exit');
    await pane.until(/^status=\d+$/m);
    await pane.resize(80, 24);
    expect(await state()).toEqual(before);
  });

  it('shows a full-screen program, and what is typed reaches it', async () => {
    await open();
    await pane.line('vi /tmp/notes');
    await pane.until(/^~$/m);
    await pane.type('ihello from vi');
    await pane.press('Escape');
    // A key that follows an escape at once would be another key.
    await pane.until(/^hello from vi[^]*^- \/tmp\/notes/m);
    await pane.line(':wq');
    await pane.until(/[$#]$/);
    await pane.line('clear; cat /tmp/notes; echo; exit 0');
    await pane.until(/^hello from vi$[^]*^status=0$/m);
    expect(await state()).toEqual(before);
  });

  it('takes back what a program left on: the other screen, a hidden cursor, colours, margins, line drawing', async () => {
    await open();
    const left = String.raw`\033[?1049h\033[?25l\033[?1h\033=\033[4h\033[?7l\033[2;5r\033(0\033[31;8mgone`;
    await pane.line(`printf '${left}'; kill -9 $$`);
    await pane.until(/^status=137$/m);
    expect(await state()).toEqual(before);
  });

  it('is left by Enter ~ . whatever runs in it, and the sandbox stays', async () => {
    await open();
    await pane.line(
      String.raw`trap '' INT QUIT TSTP TERM HUP; printf '\033[?1049h\033[?25lcaptive'; while :; do sleep 1; done`,
    );
    await pane.until(/captive/);
    await pane.press('C-c');
    await pane.press('Enter');
    await pane.type('~.');
    const screen = await pane.until(/^status=129$/m);
    expect(screen).toContain('the sandbox keeps running');
    expect(await state()).toEqual(before);
    expect((await bench.exec(['--in', id, '--', 'true'])).status).toBe(0);
  });

  it.each([
    ['TERM', 143],
    ['HUP', 129],
    ['INT', 130],
  ])('ended by SIG%s gives the terminal back, with status %i', async (signal, status) => {
    await open();
    await pane.line(String.raw`printf '\033[?1049h\033[?25lfull'; exec sleep 1000`);
    await pane.until(/^full$/m);
    const [pid = ''] = execFileSync('pgrep', ['-f', `sandbox shell ${id}`], { encoding: 'utf8' }).split('\n');
    process.kill(Number(pid), `SIG${signal}`);
    await pane.until(new RegExp(`^status=${status}$`, 'm'));
    expect(await state()).toEqual(before);
    // What ran in it has ended with it.
    expect((await bench.exec(['--in', id, 'ps'])).stdout.toString()).not.toContain('sleep 1000');
  });

  it('ended with its sandbox says so', async () => {
    const other = (await bench.call(['sandbox', 'create'])).stdout.toString().trim();
    await open(other);
    await pane.line(String.raw`printf '\033[?1049hfull'`);
    await pane.until(/^full/m);
    await bench.call(['sandbox', 'kill', other]);
    const screen = await pane.until(/^status=125$/m);
    expect(screen).toContain('ACODE-SBX-025');
    expect(await state()).toEqual(before);
  });

  it('has what agents draw and read with: all colours, whole pictures, marked pastes, Shift-Enter, the mouse and, with consent, the clipboard', async () => {
    const file = join(bench.workspace, 'terminal.yml');
    await writeFile(
      file,
      `sandbox:\n  images: { default: ${images.busybox} }\n  terminal: { clipboard: write, mouse: true }\n`,
    );
    // Reads as an agent does: each key as it comes. The last one is q.
    await writeFile(
      join(bench.workspace, 'agent.sh'),
      String.raw`printf '\033[?1049h\033[?2004h\033[?1006h\033[?1000h\033[>4;2m\033[?2026h\033[38;2;10;20;30mready\033[0m\033[?2026l'
printf '\033]52;c;%s\007' "$(printf 'from inside' | base64)"
stty raw -echo
heard=
while :; do
  key=$(dd bs=1 count=1 2>/dev/null | cat -v)
  heard="$heard$key"
  printf '\033[2;1H%s' "$heard"
  [ "$key" != q ] || break
done
stty sane
`,
    );
    await pane.line(`clear; ${acode} run -t --config ${file} 'sh agent.sh'; echo "status=$?"`);
    await pane.until(/^ready$/m);
    expect(await pane.coloured()).toContain('\u001b[38;2;10;20;30mready');
    expect(await pane.fact('mouse_any_flag')).toBe('1');
    await pane.press('S-Enter');
    await pane.paste('\n~.pasted');
    await pane.until(/\^\[\[(?:27;2;13~|13;2u)\^\[\[200~\^M~\.pasted\^\[\[201~/);
    await pane.type('q');
    const screen = await pane.until(/^status=0$/m);
    expect(screen).toContain('the program wrote to your clipboard (1 time)');
    expect(await pane.clipboard()).toBe('from inside');
    expect(await state()).toEqual(before);
  });

  it('cannot reach the clipboard, the title or the mouse, and gets no answer of the terminal', async () => {
    const clipboard = String.raw`printf '\033]52;c;%s\007' "$(printf stolen | base64)"`;
    const title = String.raw`printf '\033]2;owned\007'`;
    const mouse = String.raw`printf '\033[?1000h'`;
    const answers = String.raw`stty -icanon -echo min 0 time 10; printf '\033[c\033[6n\033[>q\033P$q"p\033\\'; printf 'answered='; for n in 1 2 3 4 5; do dd bs=100 count=1 2>/dev/null; done | cat -v; echo; stty sane`;
    await open();
    await pane.line(`clear; ${clipboard}; ${title}; ${mouse}`);
    await pane.line(answers);
    // What acode answers by itself, and nothing of this terminal’s.
    await pane.until(/^answered=\^\[\[\?62;22c\^\[P>\|acode\^\[\\$/m);
    expect([await pane.clipboard(), await pane.fact('mouse_any_flag')]).toEqual(['', '0']);
    expect(await pane.fact('pane_title')).not.toBe('owned');
    await pane.line('exit 0');
    const screen = await pane.until(/^status=0$/m);
    expect(screen.replaceAll('\n', ' ')).toContain('the program tried to write to your clipboard, and may not');
    expect(await state()).toEqual(before);
    // The same, without a sandbox in between, does all of it: this terminal would have obeyed.
    await pane.line(`clear; ${clipboard}; ${title}; ${mouse}`);
    await pane.line(answers);
    await pane.until(/^answered=\^\[\[\?1;[^]*R/m);
    expect([await pane.clipboard(), await pane.fact('mouse_any_flag')]).toEqual(['stolen', '1']);
    expect(await pane.fact('pane_title')).toBe('owned');
  });

  it('with an image and no name is in a fresh sandbox, which ends with it', async () => {
    const there = await bench.left();
    await open('--memory 64 --env A=b');
    expect((await bench.left()).length).toBe(there.length + 1);
    await pane.line('echo "A is $A"; touch made-inside; exit 3');
    const screen = await pane.until(/^status=3$/m);
    expect(screen).toMatch(/^A is b$/m);
    expect(await bench.left()).toEqual(there);
    expect(await state()).toEqual(before);
  });

  it('runs a program in place of the shell', async () => {
    await pane.line(`clear; ${acode} sandbox shell ${id} -- sh -c 'stty size; exit 5'; echo "status=$?"`);
    const screen = await pane.until(/^status=5$/m);
    expect(screen).toMatch(/^24 80$/m);
    expect(await state()).toEqual(before);
  });

  it('shows all of a long output, at the pace of the terminal', async () => {
    await open();
    await pane.line('clear; seq 1 2000000 | tail -c 14000000; echo "sum $((6*7))"');
    const screen = await pane.until(/^sum 42$/m);
    expect(screen).toContain('2000000');
    await pane.line('exit 0');
    await pane.until(/^status=0$/m);
    expect(await state()).toEqual(before);
  });
});
