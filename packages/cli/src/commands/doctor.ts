// `acode doctor`: whether this host is fit to run sandboxes; with --attack, a live attack on one and its report card.

import type { AttackOptions, AttackReport } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { renderCard, renderDoctor } from './doctor-card.ts';

interface DoctorOptions {
  readonly attack?: true;
  readonly runtime?: string;
  readonly image?: string;
}

/** The command. */
export function doctorCommand(perform: Perform) {
  return new Command('doctor')
    .description('Check this host; with --attack, attack a sandbox and print a report card (exit 0: nothing failed)')
    .option('--attack', 'run the attack corpus live, each attempt with its control; up to a minute')
    .option('--runtime <name>', 'with --attack: the engine’s runtime to attack, such as runsc')
    .option('--image <reference>', 'with --attack: the image to attack from')
    .action((options, command) => perform(command, call => doctor(call, options)));
}

async function doctor(call: Call, options: DoctorOptions): Promise<number> {
  if (options.attack) return attack(call, options);
  const alone = options.runtime === undefined ? (options.image === undefined ? null : '--image') : '--runtime';
  if (alone !== null)
    throw new UsageError(`${alone} has a meaning only with --attack.`, 'Add --attack, or leave it out.');
  const report = await call.withObserver(observer => call.progress.during('Looking around…', observer.doctor()));
  await call.print('acode.doctor/1', report, look => renderDoctor(report, look));
  return report.ok ? 0 : 1;
}

async function attack(call: Call, { runtime, image }: DoctorOptions): Promise<number> {
  const { signal } = call.interruption;
  let doing = 'Attacking…';
  const asked: AttackOptions = {
    signal,
    onProgress: ({ done, total, about }) => (doing = `Attacking: ${done} of ${total}, now ${about}…`),
    ...(runtime === undefined ? {} : { runtime }),
    ...(image === undefined ? {} : { image }),
  };
  const report = await call.withHost(acode => call.progress.during(() => doing, acode.attack(asked)));
  await call.print('acode.attack/1', report, look => renderCard(report, look));
  return hasFailed(report) ? 1 : 0;
}

function hasFailed({ probes }: AttackReport): boolean {
  return probes.some(({ verdict }) => verdict === 'fail');
}
