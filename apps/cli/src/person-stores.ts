import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { createQueueCatalog, type QueueCatalog } from "@larkline/queue";
import type { InboundMessage } from "@larkline/protocol";
import {
  ApprovalStore,
  type Archive,
  AuditLog,
  type BlobStore,
  closeRedis,
  connectRedis,
  DeadLetters,
  LookupCache,
  mastersOf,
  PermissionRules,
  RedisBlobStore,
  removeParkedMessages,
  SessionRetention,
  SessionStore,
} from "@larkline/store";

/** Where data of a person can be. */
export interface PersonStores {
  store: SessionStore;
  sessions: SessionRetention;
  approvals: ApprovalStore;
  rules: PermissionRules;
  audit: AuditLog;
  lookups: LookupCache;
  /** What workers have looked up. */
  workerLookups: LookupCache;
  blobs: BlobStore;
  letters: DeadLetters;
  /** What queues keep of finished jobs. */
  jobs: Pick<QueueCatalog, "erase">;
  /** Removes messages that wait behind a question, of all sessions; returns how many. */
  removeParked(isMeant: (message: InboundMessage) => boolean): Promise<number>;
  archive: Archive | undefined;
  close(): Promise<void>;
}

export interface PersonStoresOptions {
  redisUrl: string;
  namespace: string;
  /** The PostgreSQL of the archive; absent: there is none. */
  archiveUrl?: string | undefined;
  /** The folder of files; absent: they are in Redis. */
  blobDirectory?: string | undefined;
  onError: (error: Error) => void;
}

export function openPersonStores(options: PersonStoresOptions): PersonStores {
  const { redisUrl, namespace, archiveUrl: url, blobDirectory: directory, onError } = options;
  const redis = connectRedis(redisUrl, { onError });
  const on = { redis, namespace };
  const queues = { connection: redis, prefix: `{${namespace}}`, onError };
  const jobs = createQueueCatalog({ ...queues, masters: () => mastersOf(redis) });
  const archive = url === undefined ? undefined : createPostgresArchive({ url, schema: namespace });
  return {
    store: new SessionStore(on),
    sessions: new SessionRetention(on),
    approvals: new ApprovalStore(on),
    rules: new PermissionRules(on),
    audit: new AuditLog(on),
    lookups: new LookupCache({ ...on, owner: "ingress" }),
    workerLookups: new LookupCache({ ...on, owner: "worker" }),
    blobs: directory === undefined ? new RedisBlobStore(on) : createFileBlobStore({ directory }),
    letters: new DeadLetters(on),
    jobs,
    removeParked: async (isMeant) => await removeParkedMessages(on, isMeant),
    archive,
    close: async () => {
      await jobs.close();
      await Promise.all([closeRedis(redis), archive?.close()]);
    },
  };
}
