// Setting to change: a configuration key and the value to give it, as YAML to paste and as the command that does it.

/** The value of a setting, as it stands in a file. */
export type SettingValue = boolean | number | string | readonly string[];

/** A configuration key and the value to give it. It is data and survives JSON. */
export interface Setting {
  /** The key with dots: `sandbox.network.allow_bridge`. */
  readonly key: string;
  /** The value; for a list with `add`, the entries to add. */
  readonly value: SettingValue;
  /** Whether the entries are added to the list that is there. */
  readonly add?: true;
  /** The file to change; the user’s own unless named. */
  readonly file?: string;
}

/** The setting as nested YAML, ready for the file. Ends with a line break. */
export function settingYaml({ key, value }: Setting): string {
  const parts = key.split('.');
  const last = parts.length - 1;
  const lines = parts.map((part, depth) => `${'  '.repeat(depth)}${scalar(part)}:`);
  if (typeof value !== 'object') lines[last] = `${lines[last] ?? ''} ${scalar(value)}`;
  else if (value.length === 0) lines[last] = `${lines[last] ?? ''} []`;
  else lines.push(...value.map(entry => `${'  '.repeat(last + 1)}- ${scalar(entry)}`));
  return `${lines.join('\n')}\n`;
}

/** The setting as YAML on one line. */
function settingFlow({ key, value }: Setting): string {
  const shown = typeof value === 'object' ? `[${value.map(scalar).join(', ')}]` : scalar(value);
  const [last = '', ...above] = key.split('.').reverse();
  const inner = `${scalar(last)}: ${shown}`;
  return above.reduce((nested, part) => `${scalar(part)}: { ${nested} }`, inner);
}

/** The command line that makes the setting. */
export function settingCommand({ key, value, add }: Setting): string {
  const values = typeof value === 'object' ? value : [String(value)];
  return ['acode config set', ...(add ? ['--add'] : []), ...[key, ...values].map(argument)].join(' ');
}

/** The setting inside a sentence: what to type, or what to write into which file. */
export function settingText(setting: Setting): string {
  const file = setting.file ?? 'your configuration file';
  return `\`${settingCommand(setting)}\`, or write \`${settingFlow(setting)}\` in ${file}`;
}

// Texts that YAML reads as something else than text.
const OTHER = /^(?:true|false|null|yes|no|on|off|~)$/i;
const PLAIN = /^[A-Za-z_/][\w./+*@:-]*$/;

function scalar(value: SettingValue): string {
  if (typeof value !== 'string') return String(value);
  return PLAIN.test(value) && !OTHER.test(value) && !value.endsWith(':') ? value : JSON.stringify(value);
}

function argument(text: string): string {
  return /^[\w./+@:=-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
