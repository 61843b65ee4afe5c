// `acode doctor`: checks whether this host can run sandboxes; with --attack, attacks one and prints a report card.

import { LEVELS } from '@acode/sandbox';
import type { AttackOptions, AttackReport, Level } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { HOOKED } from '../hooks/agents.ts';
import type { Hooked } from '../hooks/agents.ts';
import { UsageError } from '../failure/usage.ts';

interface DoctorOptions {
  readonly attack?: true;
  readonly level?: Level;
  readonly runtime?: string;
  readonly image?: string;
  readonly agent?: Hooked;
}

/** The command. */
export function doctorCommand(perform: Perform) {
  return new Command('doctor')
    .description('Check this host; with --attack, attack a sandbox and print a report card (exit 0: nothing failed)')
    .option('--attack', 'run the attack corpus live, each attempt with its control; up to a minute')
    .addOption(
      new Option('--level <level>', 'with --attack: the level to attack, else the one commands get').choices(LEVELS),
    )
    .option('--runtime <name>', 'with --attack: the engine’s runtime to attack, such as runsc')
    .option('--image <reference>', 'with --attack: the image to attack from')
    .addOption(
      new Option('--agent <name>', 'check where the commands of an installed agent run, with a scripted model').choices(
        HOOKED,
      ),
    )
    .action((options, command) => perform(command, call => doctor(call, options)));
}

async function doctor(call: Call, options: DoctorOptions): Promise<number> {
  const { agent } = options;
  if (agent !== undefined) {
    if (options.attack) throw new UsageError('--agent and --attack are two checks.', 'Call one after the other.');
    return (await import('../hooks/commands.ts')).check(call, agent);
  }
  if (options.attack) return attack(call, options);
  const alone = (['level', 'runtime', 'image'] as const).find(name => options[name] !== undefined);
  if (alone !== undefined) throw new UsageError(`--${alone} needs --attack.`, 'Add --attack, or leave it out.');
  const [{ Acode }, { renderDoctor }] = await Promise.all([import('@acode/sandbox'), import('./doctor-card.ts')]);
  const examining = Acode.examine(await call.hostOptions());
  const report = await call.progress.during('Checking this machine…', examining);
  await call.print('acode.doctor/1', report, look => renderDoctor(report, look));
  return report.ok ? 0 : 1;
}

async function attack(call: Call, { level, runtime, image }: DoctorOptions): Promise<number> {
  const { signal } = call.interruption;
  const { renderCard } = await import('./doctor-card.ts');
  let doing = 'Attacking…';
  const asked: AttackOptions = {
    signal,
    onProgress: ({ done, total, about }) => (doing = `Attacking: ${done} of ${total}, now ${about}…`),
    ...(level === undefined ? {} : { level }),
    ...(runtime === undefined ? {} : { runtime }),
    ...(image === undefined ? {} : { image }),
  };
  const report = await call.withHost(acode => call.progress.during(() => doing, acode.attack(asked)));
  await call.print('acode.attack/1', report, look => renderCard(report, look));
  return isProven(report) ? 0 : 1;
}

function isProven({ probes }: AttackReport): boolean {
  return probes.every(({ verdict }) => verdict !== 'fail' && verdict !== 'not-tried');
}
