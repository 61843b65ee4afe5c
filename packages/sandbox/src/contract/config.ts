// Configuration as callers write it. Generated from policy/config/schema.ts by `npm run docs:schema`: do not edit.

/**
 * Configuration as it is written, in a file or as `AcodeOptions.config`.
 *
 * @example
 * await Acode.open({ config: { sandbox: { defaults: { memory_mb: 1024 } } } });
 */
export interface ConfigInput {
  /** Lets acode run as root; only in your own file. */
  allow_root?: boolean | undefined;
  /**
   * airgapped: no sandbox has a network, whatever else is set. burst, in your own file: `acode run` sends a command
   * to your fleet where this machine has no room.
   */
  mode?: 'local-only' | 'airgapped' | 'burst' | undefined;
  /** Everything about sandboxes. */
  sandbox?:
    | {
        /** The isolation level; auto is the strongest there is. */
        level?: 'none' | 'ulimit' | 'bubblewrap' | 'docker' | 'gvisor' | 'microvm' | 'auto' | undefined;
        /**
         * Whether acode keeps a background process with a warm sandbox for a workspace: auto after the second command
         * within ten minutes, always after the first, or never.
         */
        serve?: 'auto' | 'never' | 'always' | undefined;
        /** The risks that need docker or stronger. What is left out may run at a weaker level; critical always needs it. */
        require_for?: ('low' | 'medium' | 'high' | 'critical')[] | undefined;
        /** warn: bubblewrap stands in where there is no engine at all, for risks that require_for leaves out. */
        fallback?: 'refuse' | 'warn' | undefined;
        /** Commands that are riskier than they look. A rule only raises the risk. */
        risk_rules?:
          | {
              /** The text of a command, with * for anything. */
              match: string;
              /** The risk of what matches. */
              risk: 'low' | 'medium' | 'high' | 'critical';
            }[]
          | undefined;
        /**
         * Files and directories that are present and empty inside, besides the built-in ones: patterns relative to the
         * workspace.
         */
        mask?: string[] | undefined;
        /** Files and directories that are not masked, though a rule says so. Only your own file unmasks. */
        unmask?: string[] | undefined;
        /** Level bubblewrap. */
        bubblewrap?:
          | {
              /** Lets bubblewrap run where memory can be limited for each process only, and not for all together. */
              accept_process_limits?: boolean | undefined;
            }
          | undefined;
        /** Largest file at level ulimit. */
        max_file_size_mb?: number | undefined;
        /** CPU time of each process at level ulimit. */
        max_cpu_seconds?: number | undefined;
        /** Address space of each process at level ulimit: a size, or unlimited. */
        max_virtual_memory?: number | string | undefined;
        /** The engine’s runtime by name, such as runsc; its default unless named. */
        runtime?: string | undefined;
        /** The container engine. */
        docker?:
          | {
              /** The engine’s unix socket, as unix:///path or an absolute path. */
              host?: string | undefined;
            }
          | undefined;
        /** Limits and the user of a command whose request names none. */
        defaults?:
          | {
              /** CPUs of a sandbox. */
              cpu_limit?: number | undefined;
              /** Memory of a sandbox: megabytes, or text such as 512m or 1.5g. */
              memory_mb?: number | string | undefined;
              /** Swap beyond the memory, in megabytes. */
              memory_swap_mb?: number | undefined;
              /** Processes and threads at once. */
              pids_limit?: number | undefined;
              /** Open files of each process. */
              open_files?: number | undefined;
              /** Time limit of a command. */
              timeout_seconds?: number | string | undefined;
              /** Whether a command goes on, or ends, when one of its processes is killed for lack of memory. */
              on_out_of_memory?: 'report' | 'end' | undefined;
              /** Disk throughput. Needs runc on a Docker Engine, and a file system on a block device. */
              blkio?:
                | {
                    /** Bytes a second that a sandbox may read from the disk of the workspace: megabytes, or 20m. */
                    read_bps?: number | string | undefined;
                    /** Bytes a second that a sandbox may write to the disk of the workspace: megabytes, or 20m. */
                    write_bps?: number | string | undefined;
                  }
                | undefined;
              /** true is sandbox.network.mode: bridge, false is none. */
              network?: boolean | undefined;
              /** The user inside: host is the calling user, else "uid:gid". Never root. */
              user?: string | undefined;
            }
          | undefined;
        /** The network of sandboxes. */
        network?:
          | {
              /** none, allow, bridge, or the name of a network from allowed_networks. With a list in allow, allow unless named. */
              mode?: string | undefined;
              /**
               * What sandboxes may reach: presets such as npm:install, hosts such as registry.npmjs.org, *.example.com or
               * tcp:db.example:5432.
               */
              allow?: string[] | undefined;
              /** Hosts that no list may reach. */
              deny?: string[] | undefined;
              /** Bytes a second that the connections of an allow-list may take in each direction: megabytes, or 512k. */
              rate?: number | string | undefined;
              /** Bytes that they may take in both directions together: megabytes, or 2g. */
              max_bytes?: number | string | undefined;
              /**
               * The proxy through which the connections of an allow-list leave this host: http://proxy.example:3128. It resolves
               * their names.
               */
              upstream_proxy?: string | undefined;
              /** How acode connects repositories over SSH. Only your own file names it. */
              ssh?:
                | {
                    /** The file of known host keys, in place of your own and the machine’s. */
                    known_hosts?: string | undefined;
                    /** The private key, in place of those that ssh looks for. */
                    identity_file?: string | undefined;
                  }
                | undefined;
              /** Credentials that acode adds to requests of allowed hosts. Sandboxes never have their values. */
              credentials?:
                | Record<
                    string,
                    {
                      /** Where the value is. */
                      from:
                        | {
                            /** A variable of the environment of acode’s own process. */
                            env: string;
                          }
                        | {
                            /** A file that nobody else can write, outside every workspace. */
                            file: string;
                          }
                        | {
                            /** A program of this machine and its arguments. */
                            command: string[];
                          }
                        | {
                            /** Attributes of an entry that `secret-tool lookup` finds. */
                            secret_service: Record<string, string>;
                          }
                        | {
                            /** A login of acode’s own: `acode login` makes it, acode refreshes it. */
                            login: string;
                          };
                      /** Hosts that get it, if the list allows them. By default those of the preset with the same name. */
                      hosts?: string[] | undefined;
                      /** How it is added: bearer, or a header, a user name, or a key of the query. */
                      as?:
                        | 'bearer'
                        | {
                            /** The name of the header. */
                            header: string;
                          }
                        | {
                            /** The user name. */
                            basic: string;
                          }
                        | {
                            /** The key of the query. */
                            query: string;
                          }
                        | undefined;
                      /** The variable that holds its placeholder inside. */
                      variable?: string | undefined;
                      /** The form of the placeholder: each * becomes a letter or a digit. */
                      placeholder?: string | undefined;
                      /** base-url: the hosts are reached by a URL of the sandbox’s own loopback, and not by their names. */
                      mode?: 'inspect' | 'base-url' | undefined;
                      /** The variable that holds this URL inside. */
                      base_url_variable?: string | undefined;
                      /** The variable that holds the placeholder of the refresh token inside, where the value is of a login. */
                      refresh_variable?: string | undefined;
                    }
                  >
                | undefined;
              /** Servers that `acode login` logs in to. acode keeps and refreshes their tokens; sandboxes never have them. */
              logins?:
                | Record<
                    string,
                    {
                      /** The page that `acode login` opens a login with. */
                      authorize_url?: string | undefined;
                      /** Where codes and refresh tokens are exchanged for tokens. */
                      token_url: string;
                      /** The public client that acode is to the server. */
                      client_id: string;
                      /** What is asked for. */
                      scopes?: string[] | undefined;
                      /** Where the browser brings the code: to acode on the loopback, or to a page that shows it. */
                      redirect_uri?: string | undefined;
                      /** How exchanges are written; form unless named. */
                      token_request?: 'form' | 'json' | undefined;
                      /** Where `acode logout` ends the login. Refused inside a sandbox. */
                      revoke_url?: string | undefined;
                      /** More addresses that would end the login: refused inside. */
                      refused_urls?: string[] | undefined;
                    }
                  >
                | undefined;
              /** false: acode adds no credentials, and refuses a command whose allow-list needs one. */
              allow_credentials?: boolean | undefined;
              /** Allowed hosts that may have a private or loopback address. Only your own file names them. */
              private_hosts?: string[] | undefined;
              /** Addresses of up to 3 name servers, where there is a network. */
              dns_servers?: string[] | undefined;
              /** Ports published on 127.0.0.1, where there is a network. */
              ports?:
                | {
                    /** Port inside the sandbox. */
                    container: number;
                    /** Port on 127.0.0.1; a free one unless named. */
                    host?: number | undefined;
                    /** tcp unless named. */
                    protocol?: 'tcp' | 'udp' | undefined;
                  }[]
                | undefined;
              /** Networks of the engine that sandboxes may join. */
              allowed_networks?: string[] | undefined;
              /** How long the network remains connected. */
              timeout_seconds?: number | string | undefined;
              /** Your consent to bridge: a sandbox on it reaches services of this host and the internet. */
              allow_bridge?: boolean | undefined;
              /** Your consent to `acode run --learn=open`, which lets a command reach every public host that it asks for. */
              allow_learning?: boolean | undefined;
              /**
               * A complete bundle of CA certificates (PEM) for sandboxes with a network: mounted read-only and named in the
               * variables that clients read.
               */
              ca_file?: string | undefined;
            }
          | undefined;
        /** Images of commands that name none. */
        images?:
          | {
              /**
               * The image when a request names none and no language has one in the same file. Counts before the built-in images
               * of languages.
               */
              default?: string | undefined;
              /** The image of a workspace with a package.json. */
              node?: string | undefined;
              /** The image of a workspace with a pyproject.toml, requirements.txt or setup.py. */
              python?: string | undefined;
              /** The image of a workspace with a *.sln, *.csproj or *.fsproj. */
              dotnet?: string | undefined;
              /** The image of a workspace with a go.mod. */
              go?: string | undefined;
              /** The image of a workspace with a Cargo.toml. */
              rust?: string | undefined;
              /** Images of workspaces with several languages, named in any order: dotnet+node. */
              combined?: Record<string, string> | undefined;
              /** When an image is pulled: where it is absent, before every run, or never. */
              pull_policy?: 'missing' | 'always' | 'never' | undefined;
              /** Whether no registry is ever asked for anything. */
              offline?: boolean | undefined;
            }
          | undefined;
        /** Caches of package managers. */
        cache_volumes?:
          | {
              /** Whether sandboxes get the caches of their package managers. */
              enabled?: boolean | undefined;
              /** The cache of npm: another name, or false for none. */
              npm?: false | string | undefined;
              /** The cache of yarn: another name, or false for none. */
              yarn?: false | string | undefined;
              /** The store of pnpm: another name, or false for none. */
              pnpm?: false | string | undefined;
              /** The cache of pip: another name, or false for none. */
              pip?: false | string | undefined;
              /** The packages of NuGet: another name, or false for none. */
              nuget?: false | string | undefined;
              /** The registry of cargo: another name, or false for none. */
              cargo?: false | string | undefined;
              /** The modules of go: another name, or false for none. */
              go?: false | string | undefined;
            }
          | undefined;
        /** What of the host a sandbox is given. */
        mounts?:
          | {
              /** Whether a command can write the workspace. */
              workspace_mode?: 'rw' | 'ro' | undefined;
              /** Where the workspace is inside: an absolute path, or `same` for its own path on this machine. */
              workspace_path?: string | undefined;
              /** Size of /tmp and of the home directory, which are in memory. */
              tmpfs_size?: number | string | undefined;
              /** What a fork may take on disk. acode ends a command that reaches it, and watches: some overshoot is possible. */
              fork_size?: number | string | undefined;
              /** Further directories of the host. */
              additional?:
                | {
                    /** Directory of the host; a relative one is below the workspace. */
                    source: string;
                    /** Absolute path inside the sandbox. */
                    target: string;
                    /** True by default. */
                    readonly?: boolean | undefined;
                  }[]
                | undefined;
              /** Directories outside the workspace that mounts may come from. */
              allowed_host_roots?: string[] | undefined;
            }
          | undefined;
        /** Sandboxes beside every command, reached by name on its loopback: db: postgres:16. */
        services?:
          | Record<
              string,
              | string
              | {
                  /** The image. */
                  image: string;
                  /** The TCP port that it listens on when it is ready; the only one that its image exposes unless named. */
                  port?: number | undefined;
                  /** Variables that its image needs. Every program in the sandbox can reach the service. */
                  env?: Record<string, string> | undefined;
                  /** Arguments in place of those that its image names. */
                  command?: string[] | undefined;
                  /** The user inside, "uid:gid"; the one that its image names unless set. Never root. */
                  user?: string | undefined;
                  /** Memory of all its processes: megabytes, or 512m; 512m unless set. */
                  memory_mb?: number | string | undefined;
                  /** Directories in memory that it can write, besides the volumes of its image. */
                  writable?: string[] | undefined;
                  /** How long it may take until it listens; 60 unless set. */
                  ready_seconds?: number | string | undefined;
                }
            >
          | undefined;
        /** Names, times and number of sandboxes. */
        containers?:
          | {
              /** Beginning of container names. */
              name_prefix?: string | undefined;
              /** Labels of your own on every container; none begins with acode. */
              labels?: Record<string, string> | undefined;
              /** How long the engine may take to create a container. */
              create_timeout_seconds?: number | string | undefined;
              /** How long a pull of an image may take, with every try. */
              pull_timeout_seconds?: number | string | undefined;
              /** How long a command has between SIGTERM and SIGKILL at its time limit. */
              stop_timeout_seconds?: number | string | undefined;
              /** Sandboxes of one host at once. */
              max_concurrent?: number | undefined;
              /** What happens to a run when all places are taken. */
              on_limit?: 'queue' | 'reject' | undefined;
              /** How long a run waits for a place. */
              queue_timeout_seconds?: number | string | undefined;
              /** Whether the first command of a session removes what dead sessions left behind. */
              cleanup_orphans?: boolean | undefined;
            }
          | undefined;
        /** Removal of sandboxes. */
        cleanup?:
          | {
              /** How long the removal of one container is tried. */
              timeout_seconds?: number | string | undefined;
            }
          | undefined;
        /** Repetition of engine calls that failed for a moment. */
        retry?:
          | {
              /** How often a call is repeated. */
              attempts?: number | undefined;
              /** The pause before the first repetition. */
              base_ms?: number | undefined;
              /** How much longer each further pause is. */
              factor?: number | undefined;
            }
          | undefined;
        /** Output of commands. */
        output?:
          | {
              /** How much of each stream is kept and passed on. */
              max_bytes?: number | undefined;
              /** Whether the output of runs is kept. */
              save?: boolean | undefined;
              /** After how many days it is removed. */
              retention_days?: number | undefined;
            }
          | undefined;
        /** What programs may do with your terminal besides drawing on it. */
        terminal?:
          | {
              /**
               * write: programs with a terminal of yours may write text to its clipboard. None reads it. Only your own file says
               * so.
               */
              clipboard?: 'never' | 'write' | undefined;
              /** Whether programs with a terminal of yours receive mouse events, as with --mouse. */
              mouse?: boolean | undefined;
            }
          | undefined;
        /** Images and runtimes that are trusted. */
        security?:
          | {
              /** Repositories whose images may be run, besides the built-in ones: ghcr.io/me/* for everything below. */
              trusted_images?: string[] | undefined;
              /** Lets images from anywhere run. */
              allow_untrusted_registries?: boolean | undefined;
              /** Refuses images that are not named by digest. */
              require_digest?: boolean | undefined;
              /** Further runtimes of the engine that may be named. */
              allowed_runtimes?: string[] | undefined;
              /** Fixed: always true. */
              no_new_privileges?: true | undefined;
              /** Fixed: always [ALL]. */
              capabilities_drop?: ['ALL'] | undefined;
              /** Fixed: always empty. */
              capabilities_add?: never[] | undefined;
              /** Fixed: acode’s own strict profile. */
              seccomp_profile?: 'default' | undefined;
              /** Fixed: always true. */
              readonly_rootfs?: true | undefined;
            }
          | undefined;
        /** The most that anybody, a repository or a request, may ask for. */
        ceilings?:
          | {
              /** Most CPUs. */
              cpu_limit?: number | undefined;
              /** Most memory. */
              memory_mb?: number | string | undefined;
              /** Most swap, in megabytes. */
              memory_swap_mb?: number | undefined;
              /** Most processes and threads. */
              pids_limit?: number | undefined;
              /** Most open files. */
              open_files?: number | undefined;
              /** Longest time of a command, and of its network. */
              timeout_seconds?: number | string | undefined;
              /** Largest /tmp and home. */
              tmpfs_size?: number | string | undefined;
              /** Most bytes of each stream. */
              output_bytes?: number | undefined;
            }
          | undefined;
      }
    | undefined;
}
