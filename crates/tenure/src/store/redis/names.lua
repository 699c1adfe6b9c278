-- names(from, most; KEYS: a list of names): the names from there on, in order.
return {time, life, call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])}
