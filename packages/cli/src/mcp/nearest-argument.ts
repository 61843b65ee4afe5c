// Nearest argument: the one that a model meant when it used the name that another agent’s tool has for it.

// Names of the same thing in the tools of common agents; ours is in each row too.
const SYNONYMS: readonly (readonly string[])[] = [
  ['command', 'cmd', 'script', 'shell', 'code', 'args', 'argv'],
  ['path', 'file', 'file_path', 'filename', 'filepath', 'absolute_path', 'directory', 'dir', 'dir_path'],
  ['cwd', 'workdir', 'work_dir', 'working_directory', 'directory', 'dir', 'dir_path', 'path'],
  ['content', 'contents', 'text', 'data', 'body', 'new_content', 'file_text'],
  ['text', 'input', 'stdin', 'chars', 'content', 'data'],
  ['stdin', 'input'],
  ['old_string', 'old_text', 'old_str', 'old', 'search', 'find', 'target'],
  ['new_string', 'new_text', 'new_str', 'new', 'replace', 'replacement'],
  ['replace_all', 'all', 'global', 'allow_multiple', 'expected_replacements'],
  ['timeout_seconds', 'timeout', 'timeout_ms', 'timeout_sec', 'timeout_secs'],
  ['wait_seconds', 'wait', 'wait_ms', 'timeout', 'timeout_ms', 'yield_time_ms'],
  ['pattern', 'query', 'search', 'glob', 'regexp', 'text'],
  ['first_line', 'offset', 'start', 'start_line', 'line', 'from_line'],
  ['lines', 'limit', 'count', 'num_lines', 'line_count'],
  ['background', 'run_in_background', 'is_background', 'detach'],
  ['command_id', 'id', 'bash_id', 'shell_id', 'session_id', 'process_id', 'task_id', 'pid'],
  ['sandbox_id', 'id', 'sandbox', 'session_id', 'container_id'],
  ['env', 'environment', 'variables', 'vars'],
  ['memory_mb', 'memory'],
  ['read_only', 'readonly'],
  ['expires_in_minutes', 'expires', 'ttl', 'timeout'],
  ['why', 'reason', 'justification', 'purpose'],
];

/** The one of the known arguments that a name comes nearest to; null where it is near to none. */
export function nearestArgument(name: string, known: readonly string[]): string | null {
  const asked = snake(name);
  if (known.includes(asked)) return asked;
  const named = SYNONYMS.find(row => row.includes(asked) && known.includes(row[0] ?? ''));
  if (named) return named[0] ?? null;
  const close = known
    .map(one => ({ one, distance: editDistance(asked, one) }))
    .filter(({ one, distance }) => distance <= Math.max(1, Math.floor(one.length / 3)))
    .sort((a, b) => a.distance - b.distance);
  return close[0]?.one ?? null;
}

function snake(name: string): string {
  return name
    .slice(0, 64)
    .replaceAll(/([a-z])([A-Z])/g, '$1_$2')
    .replaceAll('-', '_')
    .toLowerCase();
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let index = 0; index < a.length; index += 1) {
    const next = [index + 1];
    for (let at = 0; at < b.length; at += 1)
      next.push(Math.min((next[at] ?? 0) + 1, (row[at + 1] ?? 0) + 1, (row[at] ?? 0) + (a[index] === b[at] ? 0 : 1)));
    row = next;
  }
  return row.at(-1) ?? 0;
}
