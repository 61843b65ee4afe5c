// The kinds of place that the suite runs in, and what each of them lacks, in words: where a behaviour does not apply, this is why.
//
// No imports: the script that writes the table of docs/levels.md reads this file by itself.

/** What a behaviour may need of the place it is shown in. */
export type Trait =
  | 'engine'
  | 'images'
  | 'walls'
  | 'no walls'
  | 'kernel walls'
  | 'own kernel'
  | 'Podman'
  | 'no engine'
  | 'any user'
  | 'memory limit'
  | 'process limit'
  | 'file limit'
  | 'control group'
  | 'host counters'
  | 'control group in sight';

/** A level, and on what. */
export type Kind =
  'docker/runc' | 'docker/runsc' | 'podman/runc' | 'bubblewrap in a control group' | 'bubblewrap' | 'ulimit' | 'none';

/** What a kind lacks, each with the reason. */
export type Lacks = Readonly<Partial<Record<Trait, string>>>;

const ENGINE_IS_THERE = 'there is an engine';
const WALLS_ARE_THERE = 'it has walls';
const HOST_KERNEL = 'its kernel is the host’s';
const OWN_KERNEL =
  'its kernel is its own: what the host’s kernel counts, filters and ends is the runtime, all of it together; behaviours of their own say what holds instead';
const NOT_PODMAN = 'the engine is not Podman';

const NO_ENGINE = 'there is no engine: nothing but the client knows of its sandboxes, and they end with it';

const local: Lacks = {
  engine: NO_ENGINE,
  images: 'there are no images: programs are the host’s',
  'any user': 'commands run as the caller: another user is refused',
  'own kernel': HOST_KERNEL,
  Podman: NO_ENGINE,
};

const NO_WALLS =
  'no security boundary: files, network and processes are the host’s; what could not be held is refused, or said';
const NOT_COUNTED = 'nothing counts what the processes of a command use together';

const unwalled: Lacks = {
  ...local,
  walls: NO_WALLS,
  'kernel walls': NO_WALLS,
  'control group': NOT_COUNTED,
  'host counters': NOT_COUNTED,
  'control group in sight': NOT_COUNTED,
  'process limit': 'the number of processes is not limited: that would count all processes of the user',
};

const NO_GROUP =
  'no control group was given to this user: memory is limited for each process alone, and what was used or hit is not reported';
const OUT_OF_SIGHT = 'the control group is not shown inside';

/** What each kind lacks. */
export const LACKS: Readonly<Record<Kind, Lacks>> = {
  'docker/runc': {
    'no walls': WALLS_ARE_THERE,
    'no engine': ENGINE_IS_THERE,
    'own kernel': HOST_KERNEL,
    Podman: NOT_PODMAN,
  },
  'docker/runsc': {
    'no walls': WALLS_ARE_THERE,
    'no engine': ENGINE_IS_THERE,
    'kernel walls': OWN_KERNEL,
    'host counters': OWN_KERNEL,
    'process limit': 'a limit on processes counts the runtime’s own threads, and a small one keeps it from starting',
    'file limit': 'few open files keep the runtime itself from starting',
    'control group in sight': 'the control groups inside are not the host’s',
    Podman: NOT_PODMAN,
  },
  'podman/runc': {
    'no walls': WALLS_ARE_THERE,
    'no engine': ENGINE_IS_THERE,
    'own kernel': HOST_KERNEL,
    'any user':
      'another user is refused here: the kernel does not show that the control groups of such a sandbox are its own',
  },
  'bubblewrap in a control group': {
    ...local,
    'no walls': WALLS_ARE_THERE,
    'control group in sight': OUT_OF_SIGHT,
  },
  bubblewrap: {
    ...local,
    'no walls': WALLS_ARE_THERE,
    'control group': NO_GROUP,
    'host counters': NO_GROUP,
    'control group in sight': OUT_OF_SIGHT,
  },
  ulimit: unwalled,
  none: {
    ...unwalled,
    'memory limit': 'there are no limits but time and output',
    'process limit': 'there are no limits but time and output',
    'file limit': 'there are no limits but time and output',
  },
};
