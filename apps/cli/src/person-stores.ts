import { createPostgresArchive } from "@larkline/store/archive-postgres";
import { createFileBlobStore } from "@larkline/store/blob-files";
import { createQueueCatalog, type QueueCatalog } from "@larkline/queue";
import type { InboundMessage } from "@larkline/protocol";
import type {
  Archive,
  ApprovalStore,
  AuditLog,
  BlobStore,
  DeadLetters,
  LookupCache,
  PermissionRules,
  PersonalData,
  SessionRetention,
  SessionStore,
} from "@larkline/store";
import {
  closeRedis,
  connectRedis,
  createRedisApprovalStore,
  createRedisAuditLog,
  createRedisBlobStore,
  createRedisDeadLetters,
  createRedisLookupCache,
  createRedisPermissionRules,
  createRedisRetention,
  createRedisSessionStore,
  mastersOf,
  removeParkedMessages,
} from "@larkline/store/redis";

/** Where data of a person can be. */
export interface PersonStores {
  store: SessionStore;
  sessions: PersonalData & Pick<SessionRetention, "read">;
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
    store: createRedisSessionStore(on),
    sessions: createRedisRetention(on),
    approvals: createRedisApprovalStore(on),
    rules: createRedisPermissionRules(on),
    audit: createRedisAuditLog(on),
    lookups: createRedisLookupCache({ ...on, owner: "ingress" }),
    workerLookups: createRedisLookupCache({ ...on, owner: "worker" }),
    blobs: directory === undefined ? createRedisBlobStore(on) : createFileBlobStore({ directory }),
    letters: createRedisDeadLetters(on),
    jobs,
    removeParked: async (isMeant) => await removeParkedMessages(on, isMeant),
    archive,
    close: async () => {
      await jobs.close();
      await Promise.all([closeRedis(redis), archive?.close()]);
    },
  };
}
