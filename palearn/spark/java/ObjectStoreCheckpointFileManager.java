package palearn;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * Spark's checkpoint files on an object store: a file is there when its upload ends, and of two writers of a new file
 * the store takes one (If-None-Match). Nothing is renamed. Any fault of an upload is an error of close().
 */
public class ObjectStoreCheckpointFileManager implements CheckpointFileManager {
  private static final String ONLY_NEW = "fs.option.create.conditional.overwrite";
  private static final String QUICK = "fs.s3a.create.performance"; // no look for a folder of that name
  private final Path path;
  private final FileSystem fs;

  public ObjectStoreCheckpointFileManager(Path path, Configuration conf) throws IOException {
    this.path = path;
    this.fs = path.getFileSystem(conf);
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path file, boolean overwriteIfPossible) {
    try {
      FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(file);
      builder.recursive();
      builder.opt(QUICK, true);
      builder.overwrite(overwriteIfPossible);
      if (!overwriteIfPossible) builder.must(ONLY_NEW, true);
      return new Upload((FSDataOutputStream) builder.build(), file);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  /** A file that is there when it is closed, and not at all when it is cancelled. */
  static final class Upload extends CancellableFSDataOutputStream {
    private final FSDataOutputStream out;
    private final Path file;
    private boolean ended;

    Upload(FSDataOutputStream out, Path file) {
      super(out);
      this.out = out;
      this.file = file;
    }

    @Override
    public synchronized void cancel() {
      if (ended) return;
      ended = true;
      out.abort();
      try {
        out.close();
      } catch (IOException e) {
        // It is no file, which is what was asked for.
      }
    }

    @Override
    public synchronized void close() throws IOException {
      if (ended) return;
      ended = true;
      try {
        out.close();
      } catch (RemoteFileChangedException e) {
        IOException known = new FileAlreadyExistsException(file + " was written by another job");
        known.initCause(e);
        throw known;
      }
    }
  }

  @Override
  public FSDataInputStream open(Path file) {
    try {
      return fs.open(file);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public FileStatus[] list(Path folder, PathFilter filter) {
    try {
      return fs.listStatus(folder, filter);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public FileStatus[] list(Path folder) {
    return list(folder, x -> true);
  }

  /** An object store has no folders; a marker would be one object more. */
  @Override
  public void mkdirs(Path folder) {
    try {
      if (isLocal()) fs.mkdirs(folder);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public boolean exists(Path file) {
    try {
      return fs.exists(file);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public void delete(Path file) {
    try {
      fs.delete(file, true);
    } catch (FileNotFoundException e) {
      // It is gone already.
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public boolean isLocal() {
    return fs instanceof LocalFileSystem;
  }

  @Override
  public Path createCheckpointDirectory() {
    return fs.makeQualified(path);
  }

  /** Scala's interface declares no exceptions, and its callers expect these. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException unchecked(Throwable e) throws E {
    throw (E) e;
  }
}
